"""Child processes: how they start, talk to their parent and exit. Spawned, never forked; knows nothing of jobs.

    parent                                            child
    spawn(target, arguments)  ------- exec ------->   entry.begin(descriptor)
    socket                    --- SpawnRequest --->   finds modules as the parent does, calls target(socket, **arguments)
    ExitWatcher               <--- exit status ----   exit code or signal

A child leads a process group of its own: signals from the terminal to the parent's group do not reach it, and a kill takes
along what its handlers have started. When one side closes the socket, or dies, the other side reads end of file.

A child that must not outlive its parent also has a lifeline: a pipe that is never written to. When the parent's end closes, for
whatever reason, the kernel kills the child's whole group, even while the child is inside C code (Linux; elsewhere the thread
that reads the child's socket does it).
"""
