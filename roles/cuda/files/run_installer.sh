#!/bin/sh
# run_installer.sh WORK INSTALLER OPTIONS...: run NVIDIA's installer INSTALLER. WORK is a folder for temporary files.
# In a wrong environment the installer crashes (10.1), or ends with status 0 and installs nothing (8.0).
work=$1 installer=$2
shift 2
unset DISPLAY SUDO_USER
LANG=C LC_ALL=C
export LANG LC_ALL
rm -f /tmp/cuda-installer.log # a log of another user ends the installer with a segmentation fault
case $installer in
*/cuda_8.0.*)
    # perl 5.26 and newer do not look for InstallUtils.pm in the current folder.
    (cd "$work" && sh "$installer" --tar mxf ./InstallUtils.pm) 2>/dev/null
    PERL5LIB=$work
    export PERL5LIB
    ;;
esac
touch "$work/begun" # missing.sh looks for files that the installer changes after this moment
sleep 0.1           # the clock of a file system may count in steps of 10 ms
exec sh "$installer" --silent "$@"
