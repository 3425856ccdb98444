#!/bin/bash
# A sweep on Slurm. The script passes its arguments to `sweeps`. The folder `--dir` must be on storage that all nodes share:
#   sbatch slurm.sh run space.yaml --dir /shared/sweeps
#   sbatch slurm.sh resume /shared/sweeps/NAME
#SBATCH --job-name=sweep
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
##SBATCH --gpus-per-task=1
#SBATCH --time=04:00:00
# Five minutes before the time limit, Slurm sends SIGTERM, and the sweep stops. `sweeps resume` continues the sweep.
#SBATCH --signal=B:TERM@300
set -euo pipefail

# source /shared/venv/bin/activate

export RAY_AUTH_MODE=token # Other users share the nodes, so the cluster requires the token in ~/.ray/auth_token.
[ -e "$HOME/.ray/auth_token" ] || ray get-auth-token --generate > /dev/null

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${hosts[0]}
port=$((20000 + SLURM_JOB_ID % 10000))
address=$head:$port
each=(--ntasks-per-node=1 "--cpus-per-task=$SLURM_CPUS_PER_TASK")
node=(--block --disable-usage-stats "--num-cpus=$SLURM_CPUS_PER_TASK")
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT

srun "${each[@]}" --nodes=1 --ntasks=1 --nodelist="$head" ray start --head --port="$port" --include-dashboard=false "${node[@]}" &
until ray health-check --address "$address" > /dev/null 2>&1; do sleep 1; done
others=$((${#hosts[@]} - 1))
if [ "$others" -gt 0 ]; then
  srun "${each[@]}" --nodes="$others" --ntasks="$others" --exclude="$head" ray start --address="$address" "${node[@]}" &
fi
python - "$address" "${#hosts[@]}" << 'END'
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[2]):
    time.sleep(1)
END

sweeps "$@" --address "$address" &
sweep=$!
trap 'kill -TERM "$sweep"' TERM
code=0
wait "$sweep" || code=$?
while kill -0 "$sweep" 2> /dev/null; do # The signal ended the first `wait`. The sweep is still stopping.
  code=0
  wait "$sweep" || code=$?
done
exit "$code"
