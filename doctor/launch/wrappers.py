"""Programs that start another one as their last words, and their options that take a word."""

from __future__ import annotations

from collections.abc import Mapping

WRAPPERS: Mapping[str, frozenset[str]] = {
    name: frozenset(options.split())
    for name, options in {
        "env": "-u --unset -C --chdir -a --argv0",
        "exec": "-a",
        "command": "",
        "nohup": "",
        "setsid": "",
        "time": "-f --format -o --output",
        "nice": "-n --adjustment",
        "ionice": "-c --class -n --classdata",
        "stdbuf": "-i --input -o --output -e --error",
        "numactl": "-N -m -C -i -p -w --cpunodebind --membind --physcpubind --interleave "
        "--preferred --cpubind --weighted-interleave",
        "taskset": "",
        "timeout": "-k --kill-after -s --signal",
        "sudo": "-u --user -g --group -h --host -p --prompt -C --close-from -D --chdir",
        "systemd-run": "-p --property -u --unit -E --setenv --slice -M --machine --description "
        "--uid --gid --nice --working-directory",
        "tini": "-p -e",
        "uvx": "--with --from -p --python --index --index-url --extra-index-url --torch-backend",
        "dumb-init": "-r --rewrite",
        "trtllm-llmapi-launch": "",
        "nvidia_entrypoint.sh": "",
        "mpirun": "-n -np --np -c -H -host --host -hostfile --hostfile -machinefile -x --map-by "
        "--bind-to --rank-by -wdir --wdir -wd -npernode --npernode -N -ppn -genvlist -path",
        "srun": "-N -n -c -p -A -t -J -w -x -o -e -i -D -G --nodes --ntasks --cpus-per-task "
        "--partition --account --time --job-name --nodelist --exclude --output --error --chdir "
        "--gpus --gres --mpi --ntasks-per-node --gpus-per-node --gpus-per-task --mem --export "
        "--container-image --container-name --container-mounts --container-workdir --qos",
        "torchrun": "--nnodes --nproc-per-node --nproc_per_node --node-rank --node_rank "
        "--master-addr --master_addr --master-port --master_port --rdzv-backend --rdzv_backend "
        "--rdzv-endpoint --rdzv_endpoint --rdzv-id --rdzv_id --max-restarts --log-dir",
    }.items()
}
"""Programs that start another one -> their options that take the next word (their manuals)."""

WRAPPERS = {**WRAPPERS, "mpiexec": WRAPPERS["mpirun"]}

PREFLIGHT = (
    "--fail-on --require --select --ignore --wait --report --format --baseline --python --timeout"
)
OURSELVES = ("infer-doctor", "infer-doctor.pyz", "infer_doctor")

RUNNERS: Mapping[tuple[str, str], frozenset[str]] = {
    key: frozenset(options.split())
    for key, options in {
        ("uv", "run"): "--with --with-editable --with-requirements --python -p --extra --group "
        "--only-group --no-group --package --project --directory --env-file --index "
        "--default-index --index-url --extra-index-url --find-links --config-file --cache-dir "
        "--torch-backend --index-strategy --prerelease --refresh-package --color",
        ("poetry", "run"): "-C --directory -P --project",
        ("pipenv", "run"): "--python",
        ("conda", "run"): "-n --name -p --prefix --cwd",
        ("mamba", "run"): "-n --name -p --prefix --cwd",
        ("micromamba", "run"): "-n --name -p --prefix --cwd",
        ("pixi", "run"): "-e --environment --manifest-path",
        ("hatch", "run"): "",
        ("infer-doctor", "preflight"): PREFLIGHT,
        ("infer-doctor.pyz", "preflight"): PREFLIGHT,
        ("infer_doctor", "preflight"): PREFLIGHT,
    }.items()
}
"""The same for programs with sub-commands."""

TWO_VALUES = frozenset({"-mca", "--mca", "-genv", "-env"})
"""Options of mpirun that take two words."""

OWN_ARGUMENTS = {"timeout": 1, "taskset": 1}
"""Words that a wrapper takes before the command: a duration, a mask."""
