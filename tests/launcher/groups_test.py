# SPDX-License-Identifier: Apache-2.0
"""Jobs whose hosts are of several groups, or share nothing."""

from __future__ import annotations

import json

from cluster import Cluster
from jobs import Tree, make_trees
from runners import needs_hosts


def in_groups(trees: list[Tree], groups: dict[str, list[str]]) -> None:
    """Puts the hosts of the trees into groups, whose order in the file is the dict's."""
    for tree in trees:
        file = tree.base / "input/config/resourceconfig.json"
        config = json.loads(file.read_text())
        [own] = [name for name, hosts in groups.items() if config["current_host"] in hosts]
        config["current_group_name"] = own
        config["instance_groups"] = [
            {"instance_group_name": name, "instance_type": f"ml.{name}.xlarge", "hosts": hosts}
            for name, hosts in groups.items()
        ]
        file.write_text(json.dumps(config))


@needs_hosts
def test_mpi_runs_in_two_groups_and_the_third_runs_the_plain_script(folder):
    script = """
        import os, socket
        rank = os.environ.get("OMPI_COMM_WORLD_RANK", "-")
        print("at", rank, socket.gethostname(), os.environ["MASTER_ADDR"],
              os.environ["SM_CURRENT_INSTANCE_GROUP"], flush=True)
    """
    groups = '["big", "small"]'
    trees = make_trees(
        folder,
        script,
        hosts=3,
        processes=1,
        hyperparameter=f"sagemaker_distribution_instance_groups={groups}",
    )
    in_groups(trees, {"big": ["algo-3"], "data": ["algo-1"], "small": ["algo-2"]})
    with Cluster(folder, trees) as hosts:
        results = hosts.run()

    assert [result.code for result in results] == [0, 0, 0], "".join(r.err for r in results)
    assert results[0].out == "at - algo-1 algo-3 data\n"
    assert "group data takes no part in the distribution" in results[0].err
    assert "[1,mpirank:0,algo-3]<stdout>:at 0 algo-3 algo-3 big\n" in results[2].out
    assert "[1,mpirank:1,algo-2]<stdout>:at 1 algo-2 algo-3 small\n" in results[2].out


@needs_hosts
def test_hosts_that_share_nothing_end_each_by_itself(folder):
    script = """
        import os, sys
        print("alone on", os.environ["SM_CURRENT_HOST"], os.environ["MASTER_ADDR"])
        sys.exit(0 if os.environ["SM_CURRENT_HOST"] == "algo-1" else 3)
    """
    trees = make_trees(folder, script, hosts=2)
    with Cluster(folder, trees) as hosts:
        first, second = hosts.run()

    assert (first.code, second.code) == (0, 1)
    assert first.out == "alone on algo-1 algo-1\n"
    assert second.out == "alone on algo-2 algo-1\n"
    assert first.tree.succeeded
    assert "ExitCode 3" in second.tree.failure
