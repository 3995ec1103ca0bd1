"""python -m crftool"""

from crftool.cli import run

if __name__ == "__main__":
    run()
