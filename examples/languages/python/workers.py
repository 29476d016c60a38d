"""A pre-forking server in small: the generator is opened once, then workers are forked, and all of them make IDs.

    LIBCOSID=target/debug/libcosid.so COSID_SOCKET=... python3 examples/languages/python/workers.py orders 4 1000

Prints 1000 IDs of each of 4 workers, and of the parent.
"""

import os
import sys

import cosid


def make(generator, count):
    # Some one at a time, the others in a batch.
    few = min(count, 100)
    ids = [generator.next() for _ in range(few)]
    if count > few:
        ids += generator.batch(count - few)
    return "".join(f"{id}\n" for id in ids).encode()


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: workers.py GENERATOR WORKERS COUNT")
    name, workers, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    generator = cosid.Generator(name)
    # The parent may have made IDs before it forks; what it has open is the children's, too.
    generator.next()

    started = []
    for _ in range(workers):
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            # A worker must never go on as the parent, whatever happens.
            try:
                os.close(read_end)
                with os.fdopen(write_end, "wb") as out:
                    out.write(make(generator, count))
                os._exit(0)
            except BaseException as error:
                print(f"worker: {error}", file=sys.stderr)
                os._exit(1)
        os.close(write_end)
        started.append((pid, read_end))

    # While they are at work.
    texts = [make(generator, count)]
    for pid, read_end in started:
        with os.fdopen(read_end, "rb") as made:
            texts.append(made.read())
        if os.waitpid(pid, 0)[1] != 0:
            sys.exit("a worker failed")
    for text in texts:
        sys.stdout.buffer.write(text)


if __name__ == "__main__":
    try:
        main()
    except cosid.Error as error:
        sys.exit(f"no ID: {error}")
