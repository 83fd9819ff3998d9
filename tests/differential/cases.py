# SPDX-License-Identifier: Apache-2.0
"""All cases of the differential test: those of the spec's section 16.2, and more around them."""

from __future__ import annotations

import json
import random

from tests.differential.case import HOST, Case

TWO_HOSTS = ("algo-1", "algo-2")
MPI = {"sagemaker_mpi_enabled": "true"}


def text(value: object) -> str:
    """As the SDK's framework estimators send a value: JSON inside text."""
    return json.dumps(value)


def group(name: str, *hosts: str, instance_type: str = "ml.c5.xlarge") -> dict[str, object]:
    return {"instance_group_name": name, "instance_type": instance_type, "hosts": list(hosts)}


NUMBERS = [
    "1e15", "1e16", "1E400", "-1e400", "-0", "-0.0", "0.1", "1e-4", "1e-5", "5e8", "1e22", "1e23",
    "123456789012345678901234567890", "-98765432109876543210", "9007199254740993",
    "9007199254740993.0", "123456789.123456789", "2.2250738585072014e-308", "5e-324", "1.0", "1E5",
    "NaN", "Infinity", "-Infinity", "nan", "inf", "007", "+1", ".5", "1.", "1_000", "0x10", "1e",
    "1.7976931348623157e308", "0.30000000000000004", "100000000000000000000.0",
]  # fmt: skip
TEXTS = [
    "", " ", " 5 ", "\n7\n", "true", "True", "TRUE", "false", "False", "null", "None", "'x'",
    '"x"', '"0123"', '""', '" a b "', "a b", "a'b", 'a"b', "a'b\"c", "$HOME `id` $(id) *", "\\",
    "é", "日本", "😀", "\u200b", "\x7f", "\x1b[0m", "\ttab\nline\r", "[1", "{", "[1,]", '{"a":1,}',
    "[]", "{}", "-", "--x", "@file:/etc/passwd", "a=b", "ß", "\ufeff1", "\xa05",
]  # fmt: skip
NESTED = [
    [1, 2.5, "x", None, True], [], [[]], [{"b": 1, "a": "x"}], {"b": True, "a": [1, 2], "c": None},
    {"d": {"b": 1, "a": "x"}}, {}, {"z": {}}, ["it's", 'say "x"', "both ' and \""],
    ["\n\t\r\\", "\x00\x1f\x7f\x80\xad", "é😀\u200b\ue000"], [1e15, 1e16, -0.0, 1e-5, 1e300 * 10],
    {"a,b": "c=d", "": "", "é": 1, "B": 1, "a": 2}, [[1, [2, [3, {"k": [None]}]]]],
]  # fmt: skip


def numbered(values: list[object]) -> dict[str, object]:
    return {f"v{index:03}": value for index, value in enumerate(values)}


def random_values(seed: int) -> dict[str, object]:
    """Texts near the border between JSON and what is not, and JSON of all shapes."""
    source = random.Random(seed)
    alphabet = "0123456789.eE+-[]{},:\"' \\ntrufalsNI_aé\t😀"

    def value(depth: int) -> object:
        kind = source.randrange(8 if depth else 6)
        if kind == 6:
            return [value(depth - 1) for _ in range(source.randrange(4))]
        if kind == 7:
            return {word(): value(depth - 1) for _ in range(source.randrange(4))}
        scalars = [
            None,
            True,
            False,
            source.randrange(10**25),
            word(),
            10.0 ** source.randrange(-20, 25),
        ]
        return scalars[kind]

    def word() -> str:
        return "".join(source.choices(alphabet, k=source.randrange(9)))

    texts = [word() for _ in range(150)]
    numbers = [
        f"{source.uniform(-1, 1) * 10.0 ** source.randrange(-320, 309)!r}" for _ in range(50)
    ]
    return numbered([*texts, *numbers, *(text(value(3)) for _ in range(100))])


PROCESS = [
    Case("no_hyperparameters"),
    Case("numbers", numbered([*NUMBERS])),
    Case("texts", numbered([*TEXTS])),
    Case("nested", numbered([text(value) for value in NESTED])),
    *(Case(f"random_values_{seed}", random_values(seed)) for seed in range(3)),
    Case("values_that_are_no_text", numbered([1, 2.5, True, None, 1e16, *NESTED])),
    Case("generic_estimator_sends_plain_text", {"a": "True", "b": "[1, 2]", "c": "0.1", "d": "x"}),
    Case(
        "odd_keys",
        {
            "batch-size": "1", "a.b": "2", "with blank": "3", "straße": "4", "😀": "5", "ж": "6",
            "x": "7", "-y": "8", "--z": "9", "ŉ": "10", "ǆ": "11", "é": "12", "UP": "13",
        },
    ),
    Case("keys_that_differ_in_case", {"LR": "1", "lr": "2", "Lr": "3"}),
    Case("order_of_keys", {"b": "1", "B": "2", "_": "3", "a_": "4", "aA": "5", "aa": "6"}),
    Case("empty_key", {"": "1", "a": "2"}),
    Case("duplicate_keys", '{"sagemaker_program": "train.py", "a": "1", "b": "2", "a": "3"}'),
    Case(
        "duplicate_keys_inside_a_value",
        {"a": '{"x": 1, "y": 2, "x": 3}', "b": '[{"k": 1, "k": 2}]'},
    ),
    Case("key_with_an_equals_sign", {"a=b": "1"}),
    Case("nul_in_a_value", {"a": "x\0y"}),
    Case("lone_surrogate", '{"sagemaker_program": "train.py", "a": "\\ud800"}'),
    Case("value_of_127_kib", {"a": "x" * 130_000}),
    Case("value_of_129_kib", {"a": "x" * 132_096}),
    Case("tuning_job", {"_tuning_objective_metric": "loss", "lr": "0.1"}),
    Case(
        "reserved_and_framework_names",
        {
            "sagemaker_enable_cloudwatch_metrics": "true", "default_user_module_name": "x",
            "sagemaker_job_name": text("job-1"), "sagemaker_region": text("eu-west-1"),
            "sagemaker_recipe_local_path": text("/x"), "sagemaker_anything": "[1, 2]",
            "sagemaker_container_log_level": "20", "sagemaker_network_interface_name": text("x"),
            "lr": "0.1",
        },
    ),
    Case("job_name_that_is_a_number", {"sagemaker_job_name": "7"}),
    Case("log_level_30", {"sagemaker_container_log_level": "30"}),
    Case("log_level_by_name", {"sagemaker_container_log_level": text("INFO")}),
    Case("log_level_by_variable", environment={"SAGEMAKER_CONTAINER_LOG_LEVEL": "30"}),
    Case("region_by_variable", environment={"AWS_DEFAULT_REGION": "us-east-2"}),
    Case("region_by_the_wrong_variable", environment={"AWS_REGION": "us-east-2"}),
    Case("job_name_by_variable", environment={"TRAINING_JOB_NAME": "job-7"}),
    Case(
        "program_by_variable",
        program="other.py",
        environment={"SAGEMAKER_PROGRAM": "train.py"},
    ),
    Case("submit_directory_is_the_code_folder_of_local_mode", {
        "sagemaker_submit_directory": text("/opt/ml/code")}),
    Case("submit_directory_by_variable", environment={
        "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/code"}),
    Case("submit_directory_on_s3_with_code_present", {
        "sagemaker_submit_directory": text("s3://bucket/key/sourcedir.tar.gz")}),
    Case("channels", channels={
        "train": {"TrainingInputMode": "File"}, "my-val": {"TrainingInputMode": "File"},
        "UP.x y": {}, "straße": {}}),
    Case("no_channels_file", channels=None),
    Case("user_variables", environment={
        "MY_VARIABLE": "a b $c", "LD_LIBRARY_PATH": "/nowhere", "OMP_NUM_THREADS": "3",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/x", "with-dash": "1"}),
    Case("user_sets_nccl_and_master", environment={
        "MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "1234", "NCCL_SOCKET_IFNAME": "eth7",
        "NCCL_IB_DISABLE": "0", "NCCL_DEBUG": "TRACE"}),
    Case("user_python_path", environment={"PYTHONPATH": "/user/one:/user/two"}, torch=False),
    Case("user_preloads", environment={"LD_PRELOAD": ""}),
    Case("no_torch", torch=False),
    Case("generic_flow", {"a": "1"}, module=None),
    Case("native_launcher", {"sagemaker_toolkit_native_launcher_enabled": "true"}),
    Case("gpus", gpus=4),
    Case("neurons", neurons='[{"nc_count": 2}, {"nc_count": 2}, {"other": 1}]'),
    Case("neurons_of_trn2", resources={"current_instance_type": "ml.trn2.48xlarge"}),
    Case("tools_are_seen", tools=("smddprun", "smddpmprun")),
    Case("local_mode_resources", resources={"current_instance_type": "local_gpu"}),
    Case("no_interface_named", resources={"network_interface_name": None}),
    Case("interface_that_is_not_there", resources={"network_interface_name": "ethwe"}),
    Case("host_without_an_address", hosts=("algo-1",)),
    Case("instance_group", resources={
        "current_instance_type": "ml.g5.xlarge", "current_group_name": "workers",
        "instance_groups": [group("workers", HOST, instance_type="ml.g5.xlarge")],
        "extra": {"kept": [1, 2.0, None]}}),
    Case("topology", resources={
        "topology": [{"hostName": HOST, "capacityUnitId": "u1", "é": "é"}]}),
    Case("empty_topology", resources={"topology": []}),
    Case("group_name_of_the_default_file", resources={
        "current_instance_group": "homogeneousCluster",
        "instance_groups": [group("homogeneousCluster", HOST, instance_type="local")]}),
    Case("several_hosts_without_distribution", {"a": "1"}, hosts=("algo-2", "algo-1")),
    Case("second_of_several_hosts", hosts=TWO_HOSTS, current_host="algo-2"),
    Case("group_outside_of_the_distribution", {
        **MPI, "sagemaker_distribution_instance_groups": text(["trainers"])},
        hosts=("algo-1", "algo-2", "algo-3"), current_host="algo-3",
        resources={"current_group_name": "loaders", "instance_groups": [
            group("trainers", "algo-2", "algo-1"), group("loaders", "algo-3")]}),
    Case("parameter_server_is_tensorflows", {"sagemaker_parameter_server_enabled": "true"}),
    Case("mp_parameters_without_mpi", {"mp_parameters": text({"partitions": 1, "ddp": True})}),
    Case("mp_parameters_as_text_without_mpi", {"mp_parameters": text("partitions=1,ddp=True")}),
    Case("model_parallel_by_variable", environment={"SM_HP_MP_PARAMETERS": '{"partitions":1}'}),
]  # fmt: skip

ENDS = [
    Case("exit_3", script="exit=3"),
    Case("exit_137", script="exit=137"),
    Case("killed_by_sigkill", script="kill=KILL"),
    Case("killed_by_sigsegv", script="kill=SEGV"),
    Case("aborts", script="kill=ABRT"),
    Case("raises", script="raise=boom"),
    Case("writes_a_failure_file_and_ends_well", script="write-failure"),
    Case("writes_a_failure_file_and_fails", script="write-failure exit=3"),
    Case("fails_in_the_generic_flow", module=None, script="exit=3"),
    Case("fails_under_the_native_launcher", {
        "sagemaker_toolkit_native_launcher_enabled": "true"}, script="exit=3"),
    Case("fails_with_arguments", {"a b": "c d", "e": "$f"}, script="exit=3"),
    Case("shell_script_fails", {"a": "x y", "b": "$HOME"}, program="run.sh", script="exit=3"),
    Case("shell_script_of_no_arguments_fails", program="run.sh", script="exit=3"),
]  # fmt: skip

PACKAGE = {"setup.py": "", "src/__init__.py": "", "src/train.py": "RECORDER"}
ENTRY_POINTS = [
    Case("shell_script", {"a b": "c  d", "e": "$HOME `x` * ' \" \\", "f": "", "g": "\n"},
         program="run.sh"),
    Case("binary", {"a": "1"}, program="tool", files={"tool": "RECORDER"}),
    Case("shell_script_beside_setup_py", program="run.sh", files={"setup.py": ""}),
    Case("shell_script_with_requirements", program="run.sh", files={"requirements.txt": "x"}),
    Case("package", {"a": "1"}, files={"setup.py": ""}),
    Case("package_with_requirements", files={"setup.py": "", "requirements.txt": "x\n"}),
    Case("package_named_without_py", program="train", files={"setup.py": ""}),
    Case("requirements", files={"requirements.txt": "x\n"}),
    Case("requirements_fail", files={"requirements.txt": "x\n"}, environment={"SMP_PIP_EXIT": "1"}),
    Case("package_fails_to_install", files={"setup.py": ""}, environment={"SMP_PIP_EXIT": "1"}),
    Case("nested_script", program="src/train.py", files={"src/train.py": "RECORDER"}),
    Case("nested_package", program="src/train.py", files=PACKAGE),
    Case("nested_script_beside_setup_py", program="src/train.py",
         files={"setup.py": "", "src/train.py": "RECORDER"}),
    Case("nested_shell_script", {"a": "1"}, program="bin/go.sh", files={
        "bin/go.sh": '#!/bin/sh\nexec /usr/bin/python3 -SE "$SMP_RECORDER" "$0" "$@"\n'}),
    Case("name_outside_of_the_folder", program="../x.py"),
    Case("name_that_is_an_option", program="-x"),
    Case("name_with_a_blank", program="a b.py", files={"a b.py": "RECORDER"}),
    Case("name_with_a_dot_segment", program="./train.py"),
    Case("name_that_is_absolute", program="/bin/ls"),
    Case("name_with_a_semicolon", program="train.py;id"),
    Case("name_that_ends_in_a_newline", program="run.sh\n", files={"run.sh\n": "#!/bin/sh\n"}),
    Case("name_of_letters_beyond_ascii", program="é.py", files={"é.py": "RECORDER"}),
    Case("name_is_empty", program=""),
    Case("no_name", program=None),
    Case("script_is_missing", program="absent.py"),
    Case("command_is_missing", program="absent.sh"),
]  # fmt: skip

CONFIGURATION = [
    Case("no_resource_config", missing=("input/config/resourceconfig.json",)),
    Case(
        "no_hyperparameters_file",
        missing=("input/config/hyperparameters.json",),
        environment={"SAGEMAKER_PROGRAM": "train.py"},
    ),
    Case("broken_hyperparameters", '{"a": '),
    Case("broken_resource_config", raw_resources="{"),
    Case("resource_config_without_hosts", raw_resources='{"current_host": "algo-1"}'),
    Case("resource_config_without_current_host", raw_resources='{"hosts": ["algo-1"]}'),
    Case("broken_channels", channels="[1"),
    Case("unknown_module", module="no_such_module:main"),
]

EFA_TYPES = ["ml.g4dn.8xlarge", "ml.p4d.24xlarge", "ml.p5.48xlarge", "ml.trn1.32xlarge",
             "ml.p5en.48xlarge", "ml.m5.large"]  # fmt: skip


def mpi(name: str, more: dict[str, object] | None = None, **options: object) -> Case:
    return Case("mpi_" + name, {**MPI, "lr": "0.1", **(more or {})}, **options)  # type: ignore[arg-type]


def mpi_with(name: str, custom: str, **options: object) -> Case:
    return mpi(name, {"sagemaker_mpi_custom_mpi_options": text(custom)}, **options)


MPI_JOBS = [
    mpi("one_process"),
    mpi("four_processes", {"sagemaker_mpi_num_of_processes_per_host": "4"}),
    mpi("processes_by_gpus", gpus=8),
    mpi("processes_by_neuron_cores", neurons='[{"nc_count": 2}]'),
    mpi("number_of_processes", {"sagemaker_mpi_num_of_processes_per_host": "4",
                                "sagemaker_mpi_num_processes": "3"}),
    mpi("generic_flow", module=None),
    mpi("shell_script", {"a": "x y $z", "b": "'"}, program="run.sh"),
    mpi("package", files={"setup.py": ""}),
    mpi("requirements", files={"requirements.txt": "x\n"}),
    mpi("fails", script="exit=3"),
    mpi("rank_is_killed", script="kill=KILL"),
    mpi("fails_in_the_generic_flow", script="exit=3", module=None),
    mpi("credentials", environment={
        "AWS_ACCESS_KEY_ID": "AKIAX", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_SESSION_TOKEN": "t",
        "AWS_REGION": "us-east-1"}),
    mpi("container_credentials", environment={
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/x", "AWS_DEFAULT_REGION": "us-east-1"}),
    mpi("library_path", environment={"LD_LIBRARY_PATH": "/opt/x/lib"}),
    mpi("user_preloads", environment={"LD_PRELOAD": ""}),
    mpi("no_mpi4py", mpi4py=False),
    mpi("empty_options", {"sagemaker_mpi_custom_mpi_options": text("")}),
    mpi_with("options", "-x FOO=1 -x BAR --mca mpi_leave_pinned 0 -verbose"),
    mpi_with("nccl_debug", "-x A=1 --NCCL_DEBUG TRACE -x B=2"),
    mpi_with("nccl_debug_with_equals", "--NCCL_DEBUG=WARN"),
    mpi_with("nccl_debug_abbreviated", "--NCCL_D VERSION"),
    mpi_with("nccl_debug_without_value", "--NCCL_DEBUG"),
    mpi_with("quotes_in_options", '-x A="b c" -x D=\'e\''),
    mpi_with("documented_vader_option", "--mca btl_vader_single_copy_mechanism none"),
    mpi_with("options_that_are_ours", "-mca btl ^openib -x NCCL_MIN_NRINGS=8 --map-by node -np 1"),
    mpi_with("hostfile", "-hostfile /x"),
    mpi_with("help", "-h"),
    mpi("switch_is_false", {"sagemaker_mpi_enabled": "false"}),
    mpi("switch_is_python_text", {"sagemaker_mpi_enabled": "True"}),
    mpi("switch_is_the_text_false", {"sagemaker_mpi_enabled": text("false")}),
    mpi("model_parallel", {"mp_parameters": text({"partitions": 1, "ddp": True}),
                           "sagemaker_distributed_dataparallel_enabled": "false",
                           "sagemaker_instance_type": text("ml.p3.16xlarge")}),
    mpi("model_parallel_without_torch", {"mp_parameters": text({"partitions": 1})}, torch=False),
    mpi("model_parallel_empty", {"mp_parameters": text({})}),
    mpi("model_parallel_as_text", {"mp_parameters": text("partitions=1")}),
    mpi("model_parallel_on_efa", {"mp_parameters": text({"partitions": 1})},
        resources={"current_instance_type": "ml.p4d.24xlarge"}),
    mpi("smddpmprun", {"mp_parameters": text({"partitions": 1, "ddp": True})},
        tools=("smddpmprun",), resources={"current_instance_type": "ml.p3.16xlarge"}),
    mpi("smddpmprun_auto", {"mp_parameters": text({"ddp": True, "ddp_dist_backend": "auto"})},
        tools=("smddpmprun",), resources={"current_instance_type": "ml.p3.16xlarge"}),
    mpi("smddpmprun_not_asked_for", {
        "mp_parameters": text({"ddp": True, "ddp_dist_backend": "nccl"})}, tools=("smddpmprun",)),
    *(mpi("on_" + name.split(".", 1)[1], resources={"current_instance_type": name})
      for name in EFA_TYPES),
    mpi("wins_over_torchrun", {"sagemaker_torch_distributed_enabled": "true"}),
    mpi("wins_over_smddp", {"sagemaker_distributed_dataparallel_enabled": "true"}),
    mpi("two_hosts_master", {"sagemaker_mpi_num_of_processes_per_host": "2"}, hosts=TWO_HOSTS,
        planned_only=True),
    mpi("two_hosts_worker", {"sagemaker_mpi_num_of_processes_per_host": "2"}, hosts=TWO_HOSTS,
        current_host="algo-2", planned_only=True),
    mpi("two_hosts_of_one_process", hosts=TWO_HOSTS, planned_only=True),
    mpi("unsorted_group", hosts=("algo-1", "algo-2", "algo-3", "algo-4"), current_host="algo-3",
        planned_only=True, resources={"current_group_name": "g", "instance_groups": [
            group("g", "algo-3", "algo-1", "algo-4", "algo-2")]}),
    mpi("two_groups", {"sagemaker_distribution_instance_groups": text(["b", "a"])},
        hosts=("algo-1", "algo-2", "algo-3"), planned_only=True,
        resources={"current_group_name": "a", "instance_groups": [
            group("a", "algo-1"), group("b", "algo-3", "algo-2")]}),
]  # fmt: skip

TORCHRUN = {"sagemaker_torch_distributed_enabled": "true"}


def torchrun(name: str, more: dict[str, object] | None = None, **options: object) -> Case:
    return Case("torchrun_" + name, {**TORCHRUN, "lr": "0.1", **(more or {})}, **options)  # type: ignore[arg-type]


def on(instance_type: str) -> dict[str, object]:
    return {"resources": {"current_instance_type": instance_type}}


TORCHRUN_JOBS = [
    torchrun("one_process"),
    torchrun("processes_by_gpus", gpus=8),
    torchrun("four_processes", {"sagemaker_mpi_num_of_processes_per_host": "4"}),
    torchrun("arguments", {"a b": "c  d", "e": "$f", "g": "", "h": text([1, "x"])}),
    torchrun("first_of_two_hosts", {"sagemaker_mpi_num_of_processes_per_host": "8"},
             hosts=TWO_HOSTS, planned_only=True),
    torchrun("second_of_two_hosts", {"sagemaker_mpi_num_of_processes_per_host": "8"},
             hosts=TWO_HOSTS, current_host="algo-2", planned_only=True),
    torchrun("unsorted_group", hosts=("algo-1", "algo-2", "algo-3"), current_host="algo-1",
             planned_only=True, resources={"current_group_name": "g", "instance_groups": [
                 group("g", "algo-3", "algo-1", "algo-2")]}),
    torchrun("on_trainium", neurons='[{"nc_count": 32}]',
             environment={"RUN_NEURON_PARALLEL_COMPILE": "1"}, **on("ml.trn1.32xlarge")),
    *(torchrun("on_" + name.split(".", 1)[1], **on(name)) for name in EFA_TYPES[:3]),
    torchrun("on_m5.large", **on("ml.m5.large")),
    torchrun("package", files={"setup.py": ""}),
    torchrun("shell_script", program="run.sh"),
    torchrun("nested_script", program="src/train.py", files={"src/train.py": "RECORDER"}),
    torchrun("with_requirements", files={"requirements.txt": "x\n"}),
    torchrun("model_parallel_v2", {"mp_parameters": text({"hybrid_shard_degree": 0})}),
    torchrun("fails", script="exit=3"),
    torchrun("fails_under_the_native_launcher", {
        "sagemaker_toolkit_native_launcher_enabled": "true"}, script="exit=3"),
    torchrun("wins_over_smddp", {"sagemaker_distributed_dataparallel_enabled": "true"}),
    torchrun("generic_flow", module=None),
    torchrun("user_sets_master_port", environment={"MASTER_PORT": "1234"}),
    torchrun("no_torch", torch=False),
]  # fmt: skip

SMDDP = {"sagemaker_distributed_dataparallel_enabled": "true"}


def smddp(name: str, more: dict[str, object] | None = None, **options: object) -> Case:
    return Case("smddp_" + name, {**SMDDP, "lr": "0.1", **(more or {})}, **options)  # type: ignore[arg-type]


SMDDP_JOBS = [
    smddp("one_host", {"sagemaker_instance_type": text("ml.p3.16xlarge")}, gpus=8),
    smddp("with_smddprun", tools=("smddprun",)),
    smddp("options", {"sagemaker_distributed_dataparallel_custom_mpi_options":
                      text("--NCCL_DEBUG TRACE -x A=1")}),
    smddp("on_p4d.24xlarge", {"sagemaker_instance_type": text("ml.p4d.24xlarge")}),
    smddp("on_p4d_by_its_host", **on("ml.p4d.24xlarge")),
    smddp("on_g4dn.8xlarge", {"sagemaker_instance_type": text("ml.g4dn.8xlarge")}),
    smddp("two_hosts", {"sagemaker_instance_type": text("ml.p4d.24xlarge"),
                        "sagemaker_mpi_num_of_processes_per_host": "8"},
          hosts=TWO_HOSTS, planned_only=True),
    smddp("two_hosts_of_one_process", hosts=TWO_HOSTS, planned_only=True),
    smddp("two_hosts_worker", hosts=TWO_HOSTS, current_host="algo-2", planned_only=True),
    smddp("shell_script", program="run.sh"),
    smddp("package", files={"setup.py": ""}),
    smddp("fails", script="exit=3"),
    smddp("user_sets_efa", environment={"FI_PROVIDER": "sockets", "NCCL_PROTO": "LL"},
          **on("ml.p4d.24xlarge")),
    Case("native_ddp", {"sagemaker_pytorch_ddp_enabled": "true", "lr": "0.1"}),
    Case("native_ddp_wins_over_torchrun", {"sagemaker_pytorch_ddp_enabled": "true", **TORCHRUN}),
]  # fmt: skip

OTHERS = [
    Case("pytorch_xla", {"sagemaker_pytorch_xla_multi_worker_enabled": "true"}, gpus=8),
    Case("another_framework", {"a": "1"}, module="smp_test_framework:main"),
    Case("another_framework_fails", {"a": "1"}, module="smp_test_framework:absent"),
    Case("gloo_abort", script="gloo-abort"),
    Case("gloo_words_of_another_end", script="gloo-words exit=3"),
]

CASES = [
    *PROCESS, *ENDS, *ENTRY_POINTS, *CONFIGURATION, *MPI_JOBS, *TORCHRUN_JOBS, *SMDDP_JOBS, *OTHERS,
]  # fmt: skip
