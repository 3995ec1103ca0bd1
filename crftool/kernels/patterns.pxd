from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from crftool.kernels.strings cimport StringTable

cdef enum:
    MACRO_NO_MEMORY = -3
    MACRO_FAILED = -4            # a Python error: see Spec.error


cdef struct Item:
    int32_t character            # of a literal
    char kind                    # 0 a literal; 46 (.) anything; the letter of a class
    char repeat                  # 0, 42 (*) or 63 (?)


# A macro that many threads may run.
cdef struct Spec:
    char command                 # X, t or m
    bint lower, from_start, to_end
    int n                        # items
    Item* items
    PyObject* owner              # the Macro


cdef class Macro:
    cdef Spec spec
    cdef object in_python        # bytes -> bytes: the same in Python, for what is not done here
    cdef object error


cdef int64_t derive(const Spec* spec, StringTable values, int64_t index) noexcept nogil
