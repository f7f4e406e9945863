# The image of python/Dockerfile with mpirun, and with the ssh by which the MPI operator's launcher reaches its workers:
#
#   docker build -f examples/kubernetes/mpi.Dockerfile -t redpoll-mpi .

# hadolint ignore=DL3006
FROM redpoll
# The operator's keys are root's, in a folder of any rights; host names are new in each job.
# hadolint ignore=DL3002
USER 0
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends openmpi-bin openssh-client openssh-server \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /run/sshd \
    && printf 'Host *\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n' >>/etc/ssh/ssh_config \
    && printf 'StrictModes no\n' >>/etc/ssh/sshd_config
