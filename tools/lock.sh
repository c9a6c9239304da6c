# Locks of this machine, for scripts to source. The engine, the images and apt-get belong to the
# machine, and scripts of several clones may run at once. The kernel frees a lock at the end of the
# script and of its children, also if they are killed.

# open_lock NAME: open the lock NAME in the descriptor $lock, which flock then takes
open_lock() {
    local file=/run/lock/mxcluster-$1
    [[ -e $file ]] || (umask 022 && : >"$file") # other users only read it
    exec {lock}<"$file"
}
