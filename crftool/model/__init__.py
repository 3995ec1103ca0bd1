"""The trained labeller and its file. `tag` needs only what uses no NumPy, so names are loaded when asked for."""


def __getattr__(name):
    if name == "Model":
        from crftool.model.model import Model
        return Model
    if name in ("SparseWeights", "TrainedWeights"):
        from crftool.model import weights
        return getattr(weights, name)
    raise AttributeError(name)
