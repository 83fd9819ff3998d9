# The training image, from a plain Debian 12 to `train` as PID 1.
#
#   os ───────────┬───────────────────────────────► runtime   (default target)
#   └► python ────┼► pruned: nvidia, torch, rest ──► ▲
#                 └► build: launcher and runtime ──► ┘  the last layer, ours
#
# Written for the BuildKit inside Debian's docker.io 20.10. Registries of your own come in as
# optional build secrets (pip_conf, apt_sources, apt_conf, ca_bundle, netrc); ci/image passes
# what the machine has. Lists and locks: docker/locks. Scripts of the stages: docker/build.

# Debian 12; ci/image makes one from packages where this cannot be pulled.
ARG BASE_IMAGE=debian:bookworm-slim
# 1: torch.compile works (triton, g++, headers); 0: about 1 GB smaller.
ARG WITH_COMPILE=1
# Hashed lock of /opt/venv, another one for other indexes or architectures.
ARG PYTHON_LOCK=docker/locks/python.lock

# --- os: Debian packages ---------------------------------------------------------------------
FROM ${BASE_IMAGE} AS os
ARG WITH_COMPILE
RUN --mount=type=bind,source=docker/build/apt_install.sh,target=/build/apt_install.sh \
    --mount=type=bind,source=docker/build/prune_os.sh,target=/build/prune_os.sh \
    --mount=type=bind,source=docker/locks/debian-runtime.txt,target=/build/runtime.txt \
    --mount=type=bind,source=docker/locks/debian-compile.txt,target=/build/compile.txt \
    --mount=type=cache,id=smp-apt,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=smp-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt_sources --mount=type=secret,id=apt_conf \
    --mount=type=secret,id=ca_bundle \
    /build/apt_install.sh /build/runtime.txt $([ "${WITH_COMPILE}" = 0 ] || echo /build/compile.txt) \
    && /build/prune_os.sh

# --- python: the locked wheels; changes only with the lock -----------------------------------
FROM os AS python
ARG PYTHON_LOCK
RUN --mount=type=bind,source=docker/build/apt_install.sh,target=/build/apt_install.sh \
    --mount=type=bind,source=docker/locks/debian-python.txt,target=/build/packages.txt \
    --mount=type=cache,id=smp-apt,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=smp-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt_sources --mount=type=secret,id=apt_conf \
    --mount=type=secret,id=ca_bundle \
    /build/apt_install.sh /build/packages.txt
# A copy, not a mount: this BuildKit expands no ARG in a mount's source.
COPY ${PYTHON_LOCK} /build/python.lock
RUN --mount=type=bind,source=docker/build/python_install.sh,target=/build/python_install.sh \
    --mount=type=secret,id=pip_conf --mount=type=secret,id=ca_bundle \
    --mount=type=secret,id=netrc \
    /build/python_install.sh /build/python.lock /opt/venv

# --- pruned: the same wheels without what no job loads, split into layers --------------------
FROM python AS pruned
ARG WITH_COMPILE
RUN --mount=type=bind,source=docker/build/prune.sh,target=/build/prune.sh \
    --mount=type=bind,source=docker/build/split.sh,target=/build/split.sh \
    --mount=type=bind,source=docker/build/precompile.py,target=/build/precompile.py \
    /build/prune.sh /opt/venv "${WITH_COMPILE}" && /opt/venv/bin/python /build/precompile.py \
    && /build/split.sh /opt/venv /out

# --- build: our program, compiled against the complete wheels --------------------------------
FROM python AS build
RUN --mount=type=bind,source=docker/build/apt_install.sh,target=/build/apt_install.sh \
    --mount=type=bind,source=docker/locks/debian-build.txt,target=/build/packages.txt \
    --mount=type=cache,id=smp-apt,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=smp-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt_sources --mount=type=secret,id=apt_conf \
    --mount=type=secret,id=ca_bundle \
    /build/apt_install.sh /build/packages.txt
RUN --mount=type=bind,target=/src \
    --mount=type=cache,id=smp-ccache,target=/root/.cache/ccache \
    /src/docker/build/compile.sh /src /opt/venv /out

# --- runtime: what runs ----------------------------------------------------------------------
FROM os AS runtime
COPY --from=pruned /out/nvidia/ /
COPY --from=pruned /out/torch/ /
COPY --from=pruned /out/rest/ /
COPY docker/rootfs/ /
RUN --mount=type=bind,source=docker/build/root_layout.sh,target=/build/root_layout.sh \
    /build/root_layout.sh
COPY LICENSE /usr/share/doc/smp/LICENSE
COPY --from=build /out/ /

# Names that images for the service promise, and nothing that is a decision of the job.
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/amazon/openmpi/bin \
    LANG=C.UTF-8 \
    LC_ALL=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONIOENCODING=UTF-8 \
    PYTHONUNBUFFERED=1 \
    CUDA_HOME=/usr/local/cuda \
    DLC_CONTAINER_TYPE=training \
    SAGEMAKER_TRAINING_MODULE=sagemaker_pytorch_container.training:main \
    # Without these two a host whose default runtime is NVIDIA's starts the container without GPUs.
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    SMP_DEEPSPEED_COMPAT=1

# The second family is read by tools made for AWS's images; these are not AWS's images.
LABEL org.opencontainers.image.title="smp-train" \
      org.opencontainers.image.description="Runs SageMaker training jobs with an open model-parallel library; independent of Amazon" \
      org.opencontainers.image.licenses="Apache-2.0" \
      dlc_major_version="1" \
      com.amazonaws.ml.engines.sagemaker.dlc.framework.pytorch.2-11-0="true" \
      com.amazonaws.ml.engines.sagemaker.dlc.device.gpu.cu130="true" \
      com.amazonaws.ml.engines.sagemaker.dlc.job.training="true" \
      com.amazonaws.ml.engines.sagemaker.dlc.os.debian12="true" \
      com.amazonaws.ml.engines.sagemaker.dlc.python.py311="true"

# Version and commit come last: they change no layer. ci/image takes them from the source.
ARG VERSION=0.0.0
# Git commit of the source, empty when unknown.
ARG REVISION=
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

WORKDIR /opt/ml/code
EXPOSE 22
STOPSIGNAL SIGTERM
HEALTHCHECK NONE
ENTRYPOINT ["/opt/venv/bin/train"]
