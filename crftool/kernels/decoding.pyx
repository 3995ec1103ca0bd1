"""Labels and probabilities of one sequence whose scores lie in a Workspace.

The recursions are those of chain.pyx, queries.pyx and viterbi.pyx; only what needs less than they do is done
here: the best predecessor of a label is looked for on the best path alone.
"""

from libc.math cimport INFINITY, isfinite
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from crftool.kernels.chain cimport Links, add_boundaries, forward_backward, forward_backward_log
from crftool.kernels.kinds cimport Kind
from crftool.kernels.queries cimport segment_share, sequence_entropy
from crftool.kernels.vector cimport crf_operations, operations
from crftool.kernels.viterbi cimport best_of, path_score, sparse_step
from crftool.kernels.workspace cimport FORBIDDEN, GOOD, NO_MEMORY, OUT_OF_RANGE, Workspace


cdef int decode(const Wishes* wishes, const Kind* bigrams, Workspace work, int64_t T) noexcept nogil:
    """Fill in the labels, or the best paths, and whatever else is wanted."""
    cdef const Links* links = &work.blocks.links
    cdef int64_t Y = links.Y, t
    cdef int status
    if wishes.best == 0 and not wishes.posterior:
        viterbi(work, T)
        if work.score == -INFINITY:
            return why(work, T)
    if wishes.sums:
        status = sums(wishes, bigrams, work, T)
        if status != GOOD:
            return status
    if wishes.best:
        work.paths.found = work.paths.find(links, T, work.transition, work.mu, wishes.best)
        return GOOD if work.paths.found >= 0 else NO_MEMORY
    if wishes.posterior:
        for t in range(T):
            work.labels[t] = <int32_t> best_of(Y, work.p + t * Y)
    if wishes.sums:
        work.probability = path_score(links, T, work.transition, work.mu, work.labels) - work.log_z
        operations().exp_shifted(1, &work.probability, 0.0, &work.probability)
    if wishes.phrases:
        find_phrases(wishes, work, T)
    if wishes.entropy:
        work.entropy = sequence_entropy(&work.blocks.dense if work.in_log_domain else links, work.in_log_domain, T,
                                        work.transition, work.mu, work.alpha, work.u, work.p, work.log_z, work.work)
    return GOOD


cdef void viterbi(Workspace work, int64_t T) noexcept nogil:
    """labels [T]: the best path; ties go to the lowest previous label and the lowest last label."""
    cdef const crf_operations* op = operations()
    cdef const Links* links = &work.blocks.links
    cdef int64_t Y = links.Y, t, i, label
    cdef const double* lam
    cdef double* delta
    cdef double best
    cdef int32_t c
    for t in range(T):
        delta = work.delta + t * Y
        if t == 0:
            memcpy(delta, work.mu, Y * sizeof(double))
        else:
            c = work.transition[t]
            if links.slot[c] < 0:
                sparse_step(links, c, delta - Y, delta, work.back + t * Y)
            else:
                op.best_score(Y, Y, delta - Y, links.lam + links.slot[c] * links.stride, work.best + t * Y)
                memcpy(delta, work.best + t * Y, Y * sizeof(double))
            op.add(Y, work.mu + t * Y, delta)
        add_boundaries(links, T, t, work.transition, delta)
    label = best_of(Y, delta)
    work.score = delta[label]
    for t in range(T - 1, -1, -1):
        work.labels[t] = <int32_t> label
        if t == 0:
            break
        c = work.transition[t]
        if links.slot[c] < 0:
            label = work.back[t * Y + label]
            continue
        lam = links.lam + links.slot[c] * links.stride
        delta = work.delta + (t - 1) * Y
        best = work.best[t * Y + label]
        for i in range(Y):
            if delta[i] + lam[i * Y + label] == best:
                label = i
                break


cdef int sums(const Wishes* wishes, const Kind* bigrams, Workspace work, int64_t T) noexcept nogil:
    """p [T][Y] and log Z, with the messages; scaled, or in the log domain."""
    cdef int64_t Y = work.blocks.Y
    work.in_log_domain = work.blocks.log_domain
    if not work.in_log_domain:
        memcpy(work.u, work.mu, T * Y * sizeof(double))
        work.log_z = forward_backward(&work.blocks.links, T, work.transition, work.u, work.alpha, work.p, work.work)
        if isfinite(work.log_z):
            return GOOD
        if not wishes.may_use_logs:
            return why(work, T)
    work.in_log_domain = True
    if not work.blocks.all_dense(bigrams, T, work.transition):
        return NO_MEMORY
    memcpy(work.u, work.mu, T * Y * sizeof(double))
    work.log_z = forward_backward_log(&work.blocks.dense, T, work.transition, work.u, work.alpha, work.p, work.work)
    return GOOD if isfinite(work.log_z) else why(work, T)


cdef int why(Workspace work, int64_t T) noexcept nogil:
    """Why a sequence has no probable labelling: FORBIDDEN, with its dead end, or OUT_OF_RANGE."""
    cdef int64_t Y = work.blocks.Y, t, y, i
    cdef bint there
    cdef uint8_t* possible
    cdef uint8_t* before
    if work.blocks.allowed is None:
        return OUT_OF_RANGE
    possible = <uint8_t*> calloc(2 * Y, 1)
    if possible == NULL:
        return NO_MEMORY
    before = possible + Y
    work.dead_end = -1
    for t in range(T):
        memcpy(before, possible, Y)
        there = False
        for y in range(Y):
            possible[y] = 0
            if work.forced[t] >= 0 and work.forced[t] != y or t == T - 1 and not work.blocks.allowed[y * (Y + 1) + Y]:
                continue
            if t == 0:
                possible[y] = work.blocks.allowed[Y * (Y + 1) + y] != 0
            else:
                for i in range(Y):
                    if before[i] and work.blocks.allowed[i * (Y + 1) + y]:
                        possible[y] = 1
                        break
            there |= possible[y]
        if not there:
            work.dead_end = t
            break
    free(possible)
    return OUT_OF_RANGE if work.dead_end < 0 else FORBIDDEN


cdef void find_phrases(const Wishes* wishes, Workspace work, int64_t T) noexcept nogil:
    """The phrases of the labelling and how sure they are; outside phrases a token is as sure as its label."""
    cdef const Links* links = &work.blocks.dense if work.in_log_domain else &work.blocks.links
    cdef int64_t Y = links.Y, t, last, before, n = 0
    cdef double share
    for t in range(T):
        work.confidence[t] = work.p[t * Y + work.labels[t]]
    for t in range(T):
        before = work.labels[t - 1] if t > 0 else Y
        if not wishes.starts[before * (Y + 1) + work.labels[t]]:
            continue
        last = t
        while last < T - 1 and not wishes.ends[work.labels[last] * (Y + 1) + work.labels[last + 1]]:
            last += 1
        share = segment_share(links, work.in_log_domain, T, work.transition, work.alpha, work.u, work.p, work.labels,
                              t, last, wishes.starts, wishes.ends, Y + 1)
        work.phrases[n].first, work.phrases[n].last, work.phrases[n].confidence = t, last, share
        n += 1
        for before in range(t, last + 1):
            work.confidence[before] = share
    work.n_phrases = n
