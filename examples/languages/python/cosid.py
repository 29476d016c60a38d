"""IDs from the CosId agent, by libcosid and ctypes: no package to install.

Open the generator once, before a server forks its workers: parent and children then share the slot, and no two of their IDs
are equal. Threads may share one, too; the interpreter's lock is not held while C works.
"""

import ctypes
import os

_STATUS_OK = 0
_STATUS_NOT_YET = 1
_STATUS_SLOT_LOST = 2


class Error(Exception):
    """Why there is no ID. `transient`: the same call can succeed later without anybody changing anything."""

    def __init__(self, status, message, transient):
        super().__init__(message)
        self.status = status
        self.transient = transient


def _load():
    # LIBCOSID is for where the library is in none of the system's folders.
    library = ctypes.CDLL(os.environ.get("LIBCOSID", "libcosid.so"))
    handle, number = ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)
    # ctypes checks nothing against the header: these lines have to say what it says.
    signatures = {
        "cosid_open": ([ctypes.c_char_p, ctypes.POINTER(handle)], ctypes.c_int32),
        "cosid_generator_open": ([handle, ctypes.c_char_p, ctypes.POINTER(handle)], ctypes.c_int32),
        "cosid_next": ([handle, ctypes.c_uint32, number], ctypes.c_int32),
        "cosid_try_next": ([handle, number, number], ctypes.c_int32),
        "cosid_next_batch": ([handle, ctypes.c_uint32, number, ctypes.c_size_t], ctypes.c_int32),
        "cosid_is_transient": ([ctypes.c_int32], ctypes.c_bool),
        "cosid_error": ([], ctypes.c_char_p),
    }
    for name, (arguments, result) in signatures.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, result
    return library


_lib = _load()


def _check(status):
    if status != _STATUS_OK:
        message = _lib.cosid_error().decode("utf-8", "replace")
        raise Error(status, message, _lib.cosid_is_transient(status))


class Generator:
    """The IDs of one name. It lives as long as the program: nothing has to be closed."""

    def __init__(self, name, socket=None, timeout=2.0):
        """`socket`: the agent's, without it that of COSID_SOCKET. `timeout`: how long `next` and `batch` wait, in seconds."""
        self._timeout_ms = int(timeout * 1000)
        self._client, self._handle = ctypes.c_void_p(), ctypes.c_void_p()
        path = None if socket is None else os.fsencode(socket)
        _check(_lib.cosid_open(path, ctypes.byref(self._client)))
        _check(_lib.cosid_generator_open(self._client, name.encode(), ctypes.byref(self._handle)))

    def next(self):
        """The next ID."""
        id = ctypes.c_uint64()
        _check(_lib.cosid_next(self._handle, self._timeout_ms, ctypes.byref(id)))
        return id.value

    def try_next(self):
        """The next ID, or None if there is none now; never waits."""
        id = ctypes.c_uint64()
        status = _lib.cosid_try_next(self._handle, ctypes.byref(id), None)
        if status in (_STATUS_NOT_YET, _STATUS_SLOT_LOST):
            return None
        _check(status)
        return id.value

    def batch(self, count):
        """A list of `count` IDs, 1 to 100000: much less for each than `next`."""
        ids = (ctypes.c_uint64 * count)()
        _check(_lib.cosid_next_batch(self._handle, self._timeout_ms, ids, count))
        return list(ids)
