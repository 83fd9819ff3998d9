# The training image, from a plain Debian 12 to `train` as PID 1.
#
#   os ─┬► system (os-0 or os-1) ────────────────────────────► runtime   (default target)
#       ├► pip ─┬► wheels ─► python ─┬► pruned: nvidia, torch, rest ► ▲
#       │       └► nvcc_wheels ──────┴► toolchain ─┬► build ────────► ┤
#       │                                          ├► cpp: build, to compile programs in
#       │                                          └► devtools ─► test, dev
#       └► efa: AWS's network, when asked for ──────────────────────► ┘
#   build: compiled in the toolchain, or by ci/build (ci/image --compiled)
#   packages, wheelhouse: what a build without network needs (ci/vendor)
#   test: the tests that need no second process, as a build step; dev: to work in
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
# 1: packages and wheels come from docker/vendor, which ci/vendor fills; nothing is fetched.
ARG OFFLINE=0
# Address of a snapshot of Debian's archive, where the mirror has dropped locked versions.
ARG APT_SNAPSHOT=
# image: our programs are compiled in it; host: ci/build has compiled them (ci/image --compiled).
ARG COMPILED_ON=image
# 1: a Debian package in another version than debian.lock's fails the build.
ARG STRICT_LOCK=0

# --- os: Debian packages of every image ------------------------------------------------------
FROM ${BASE_IMAGE} AS os
ARG OFFLINE
ARG STRICT_LOCK
ARG APT_SNAPSHOT
RUN --mount=type=bind,source=docker/build/check_base.sh,target=/build/check_base.sh \
    --mount=type=bind,source=docker/build/apt_install.sh,target=/build/apt_install.sh \
    --mount=type=bind,source=docker/build/prune_os.sh,target=/build/prune_os.sh \
    --mount=type=bind,source=docker/locks/debian-runtime.txt,target=/build/packages.txt \
    --mount=type=bind,source=docker/locks/debian.lock,target=/build/debian.lock \
    --mount=type=bind,source=docker/vendor,target=/vendor \
    --mount=type=cache,id=smp-apt,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=smp-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt_sources --mount=type=secret,id=apt_conf \
    --mount=type=secret,id=ca_bundle \
    /build/check_base.sh && /build/apt_install.sh /build/packages.txt && /build/prune_os.sh

# --- system: the same, with what torch.compile calls or without ------------------------------
FROM os AS os-0
FROM os AS os-1
ARG OFFLINE
ARG STRICT_LOCK
ARG APT_SNAPSHOT
RUN --mount=type=bind,source=docker/build/apt_install.sh,target=/build/apt_install.sh \
    --mount=type=bind,source=docker/build/prune_os.sh,target=/build/prune_os.sh \
    --mount=type=bind,source=docker/locks/debian-compile.txt,target=/build/packages.txt \
    --mount=type=bind,source=docker/locks/debian.lock,target=/build/debian.lock \
    --mount=type=bind,source=docker/vendor,target=/vendor \
    --mount=type=cache,id=smp-apt,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=smp-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt_sources --mount=type=secret,id=apt_conf \
    --mount=type=secret,id=ca_bundle \
    /build/apt_install.sh /build/packages.txt && /build/prune_os.sh
FROM os-${WITH_COMPILE} AS system

# --- pip: what installs the wheels ------------------------------------------------------------
FROM os AS pip
ARG OFFLINE
ARG STRICT_LOCK
ARG APT_SNAPSHOT
RUN --mount=type=bind,source=docker/build/apt_install.sh,target=/build/apt_install.sh \
    --mount=type=bind,source=docker/locks/debian-python.txt,target=/build/packages.txt \
    --mount=type=bind,source=docker/locks/debian.lock,target=/build/debian.lock \
    --mount=type=bind,source=docker/vendor,target=/vendor \
    --mount=type=cache,id=smp-apt,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=smp-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt_sources --mount=type=secret,id=apt_conf \
    --mount=type=secret,id=ca_bundle \
    /build/apt_install.sh /build/packages.txt
ARG PYTHON_LOCK
# A copy, not a mount: this BuildKit expands no ARG in a mount's source.
COPY ${PYTHON_LOCK} /build/python.lock

# --- wheels: fetched once for each lock; empty with OFFLINE=1 ---------------------------------
FROM pip AS wheels
RUN --mount=type=bind,source=docker/build/python_fetch.sh,target=/build/python_fetch.sh \
    --mount=type=secret,id=pip_conf --mount=type=secret,id=ca_bundle \
    --mount=type=secret,id=netrc \
    /build/python_fetch.sh /build/python.lock /wheels

# --- nvcc_wheels: CUDA's compiler, likewise ---------------------------------------------------
FROM pip AS nvcc_wheels
RUN --mount=type=bind,source=docker/build/python_fetch.sh,target=/build/python_fetch.sh \
    --mount=type=bind,source=docker/locks/nvcc.lock,target=/build/nvcc.lock \
    --mount=type=secret,id=pip_conf --mount=type=secret,id=ca_bundle \
    --mount=type=secret,id=netrc \
    /build/python_fetch.sh /build/nvcc.lock /wheels

# --- python: the locked wheels, installed -----------------------------------------------------
FROM pip AS python
RUN --mount=type=bind,source=docker/build/python_install.sh,target=/build/python_install.sh \
    --mount=type=bind,source=docker/vendor,target=/vendor \
    --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    /build/python_install.sh /build/python.lock /opt/venv

# --- pruned: the same wheels without what no job loads, split into layers --------------------
FROM python AS pruned
ARG WITH_COMPILE
RUN --mount=type=bind,source=docker/build/prune.sh,target=/build/prune.sh \
    --mount=type=bind,source=docker/build/split.sh,target=/build/split.sh \
    --mount=type=bind,source=docker/build/precompile.py,target=/build/precompile.py \
    /build/prune.sh /opt/venv "${WITH_COMPILE}" && /opt/venv/bin/python /build/precompile.py \
    && /build/split.sh /opt/venv /out

# --- build: our program, compiled by g++ and nvcc against the complete wheels -----------------
FROM python AS toolchain
ARG OFFLINE
ARG STRICT_LOCK
ARG APT_SNAPSHOT
RUN --mount=type=bind,source=docker/build/apt_install.sh,target=/build/apt_install.sh \
    --mount=type=bind,source=docker/locks/debian-build.txt,target=/build/packages.txt \
    --mount=type=bind,source=docker/locks/debian.lock,target=/build/debian.lock \
    --mount=type=bind,source=docker/vendor,target=/vendor \
    --mount=type=cache,id=smp-apt,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=smp-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt_sources --mount=type=secret,id=apt_conf \
    --mount=type=secret,id=ca_bundle \
    /build/apt_install.sh /build/packages.txt
RUN --mount=type=bind,source=docker/build/python_install.sh,target=/build/python_install.sh \
    --mount=type=bind,source=docker/locks/nvcc.lock,target=/build/nvcc.lock \
    --mount=type=bind,source=docker/vendor,target=/vendor \
    --mount=type=bind,from=nvcc_wheels,source=/wheels,target=/wheels \
    /build/python_install.sh /build/nvcc.lock /opt/venv \
    # nvcc looks for libraries where an installed toolkit has them.
    && ln --symbolic lib /opt/venv/lib/python3.11/site-packages/nvidia/cu13/lib64
# Without the tests, whose edits would invalidate the build.
FROM scratch AS source
COPY CMakeLists.txt pyproject.toml LICENSE /
COPY opt_ml_layout /opt_ml_layout
COPY entrypoint /entrypoint
COPY smp_runtime /smp_runtime
FROM toolchain AS build-image
RUN --mount=type=bind,from=source,target=/src \
    --mount=type=bind,source=docker/build/compile.sh,target=/build/compile.sh \
    --mount=type=bind,source=docker/build/install_programs.sh,target=/build/install_programs.sh \
    --mount=type=cache,id=smp-ccache,target=/root/.cache/ccache \
    /build/compile.sh /src /opt/venv /out
FROM scratch AS build-host
COPY build/programs/ /out/
FROM build-${COMPILED_ON} AS build

# --- cpp: to build training programs in C++, which the image then runs ------------------------
FROM toolchain AS cpp
COPY --from=build /out/ /
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    CMAKE_PREFIX_PATH=/opt/venv/lib/python3.11/site-packages/smdistributed
WORKDIR /src
CMD ["/bin/bash"]

# --- test: a build that fails where a test does -----------------------------------------------
FROM toolchain AS devtools
ARG OFFLINE
ARG STRICT_LOCK
ARG APT_SNAPSHOT
RUN --mount=type=bind,source=docker/build/apt_install.sh,target=/build/apt_install.sh \
    --mount=type=bind,source=docker/locks,target=/locks \
    --mount=type=bind,source=docker/locks/debian.lock,target=/build/debian.lock \
    --mount=type=bind,source=docker/vendor,target=/vendor \
    --mount=type=cache,id=smp-apt,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,id=smp-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt_sources --mount=type=secret,id=apt_conf \
    --mount=type=secret,id=ca_bundle \
    /build/apt_install.sh /locks/debian-compile.txt /locks/debian-test.txt \
      /locks/debian-dev.txt /locks/debian-debug.txt
FROM devtools AS test
RUN --mount=type=bind,target=/src \
    --mount=type=cache,id=smp-ccache,target=/root/.cache/ccache \
    /src/docker/build/test.sh /src /opt/venv

# --- dev: everything to work on the source, which is mounted; also the devcontainer -----------
FROM devtools AS dev
RUN --mount=type=bind,source=docker/locks,target=/locks \
    --mount=type=bind,source=docker/build/python_fetch.sh,target=/build/python_fetch.sh \
    --mount=type=bind,source=docker/build/dev_install.sh,target=/build/dev_install.sh \
    --mount=type=secret,id=pip_conf --mount=type=secret,id=ca_bundle \
    --mount=type=secret,id=netrc \
    /build/dev_install.sh /locks /opt/venv
COPY docker/rootfs/ /
RUN --mount=type=bind,source=docker/build/root_layout.sh,target=/build/root_layout.sh \
    /build/root_layout.sh
ENV PATH=/opt/venv/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    CUDA_HOME=/usr/local/cuda \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /src
CMD ["/bin/bash"]

# --- efa: libfabric and NCCL's plugin from AWS's installer; empty by default -----------------
FROM os AS efa
# 1: docker/efa/aws-efa-installer.tar.gz; else its URL. See docker/efa/README.md.
ARG EFA_INSTALLER=0
# The installer's SHA-256; required with it, here or in docker/locks/artifacts.lock.
ARG EFA_SHA256=
RUN --mount=type=bind,source=docker/efa,target=/efa --mount=type=secret,id=ca_bundle \
    --mount=type=bind,source=docker/locks/artifacts.lock,target=/build/artifacts.lock \
    /efa/install.sh "${EFA_INSTALLER}" "${EFA_SHA256}" /out

# --- packages: everything from Debian's mirror, for docker/vendor ----------------------------
FROM ${BASE_IMAGE} AS fetched
RUN --mount=type=bind,source=docker/build/apt_install.sh,target=/build/apt_install.sh \
    --mount=type=bind,source=docker/locks,target=/locks \
    --mount=type=bind,source=docker/locks/debian.lock,target=/build/debian.lock \
    --mount=type=cache,id=smp-apt-lists,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=secret,id=apt_sources --mount=type=secret,id=apt_conf \
    --mount=type=secret,id=ca_bundle \
    /build/apt_install.sh --download /out /locks/debian-*.txt
FROM scratch AS packages
COPY --from=fetched /out/ /
FROM scratch AS wheelhouse
COPY --from=wheels /wheels/ /
COPY --from=nvcc_wheels /wheels/ /

# --- runtime: what runs ----------------------------------------------------------------------
FROM system AS runtime
COPY --from=pruned /out/nvidia/ /
COPY --from=pruned /out/torch/ /
COPY --from=pruned /out/rest/ /
COPY --from=efa /out/ /
COPY docker/rootfs/ /
RUN --mount=type=bind,source=docker/build/root_layout.sh,target=/build/root_layout.sh \
    /build/root_layout.sh
COPY LICENSE /usr/share/doc/smp/LICENSE
COPY --from=build /out/ /
# When the documents were made, in RFC 3339; ci/image gives the commit's time.
ARG CREATED=1970-01-01T00:00:00Z
RUN --mount=type=bind,source=docker/build/inventory.py,target=/build/inventory.py \
    /opt/venv/bin/python -B /build/inventory.py write /usr/share/doc/smp "${CREATED}"

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
      com.amazonaws.ml.engines.sagemaker.dlc.framework.pytorch.2-15-0="true" \
      com.amazonaws.ml.engines.sagemaker.dlc.device.gpu.cu132="true" \
      com.amazonaws.ml.engines.sagemaker.dlc.job.training="true" \
      com.amazonaws.ml.engines.sagemaker.dlc.os.debian12="true" \
      com.amazonaws.ml.engines.sagemaker.dlc.python.py311="true"

# Version, commit and base come last: they change no layer. ci/image takes them from the source.
ARG BASE_IMAGE
# Digest of the base image, empty when unknown.
ARG BASE_DIGEST=
ARG VERSION=0.0.0
# Git commit of the source, and where the source is published; empty when unknown.
ARG REVISION=
ARG SOURCE=
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}"
# What a report says that the job ran in; a digest cannot stand in the image that it is of.
ENV SMP_IMAGE="smp-train ${VERSION} ${REVISION}"

WORKDIR /opt/ml/code
EXPOSE 22
STOPSIGNAL SIGTERM
HEALTHCHECK NONE
ENTRYPOINT ["/opt/venv/bin/train"]
