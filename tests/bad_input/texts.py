"""Bad input: files that are not space files, and wrong arguments on the command line."""

from __future__ import annotations

from tests.bad_input import Case, line, top, typed, whole

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)

TABLE: dict[str, tuple[Case, ...]] = {
    "Files that are not a space file": (
        whole(
            "a tab",
            "data:⏎⇥train: rows.csv",
            "data:\n\ttrain: rows.csv\n",
            "2:1: not valid YAML: a tab is not allowed as indentation or before a key or value; "
            "use spaces",
        ),
        whole(
            "a wrong indentation",
            "limits:⏎  max_trials: 4⏎ timeout: 1m",
            "limits:\n  max_trials: 4\n timeout: 1m\n",
            "3:2: not valid YAML: the indentation is wrong, or a `- ` or a `key:` is missing",
        ),
        whole(
            "an indentation that is too deep",
            "limits: 4⏎  timeout: 1m",
            "limits: 4\n  timeout: 1m\n",
            "2:10: not valid YAML: a `key:` is not allowed here; the indentation is wrong, or a "
            "text with `: ` needs quotes",
        ),
        whole(
            "a bracket that is not closed",
            "space: {params: {⏎",
            "space: {params: {\n",
            "1:17: not valid YAML: a `[` or `{` is not closed",
        ),
        whole(
            "a quote that is not closed",
            "name: 'x⏎",
            "name: 'x\n",
            "1:7: not valid YAML: a quote is not closed",
        ),
        line(
            "a Python object",
            "name: !!python/object/apply:os.system [id]",
            "6:7: tag `!!python/object/apply:os.system`: a space file must be plain data without "
            "tags; remove the tag",
        ),
        line(
            "a tag",
            "name: !mine x",
            "6:7: tag `!mine`: a space file must be plain data without tags; remove the tag",
        ),
        whole(
            "an alias bomb",
            "a0: &a0 [x, ...], a1: &a1 [*a0, *a0, ...], and on",
            BOMB,
            "4:45: the file has too many values; at most 10000 are allowed, and each alias counts "
            "as a copy of its value",
        ),
        whole(
            "an alias of itself",
            "a: &x [*x]",
            "a: &x [*x]\n",
            "1:8: `*x` refers to a value that contains it",
        ),
        whole(
            "an alias without an anchor",
            "a: *x",
            "a: *x\n",
            "1:4: `*x`: there is no anchor `&x` before this alias",
        ),
        whole(
            "a merge key",
            "<<: {a: 1}",
            "<<: {a: 1}\n",
            "1:1: merge keys (`<<`) are not part of YAML 1.2; write the keys without `<<`",
        ),
        whole(
            "deep nesting",
            "[[[[[[[[...",
            "[" * 100_000,
            "1:51: the values are nested too deep; at most 50 levels are allowed",
        ),
        whole(
            "very many values",
            "a: [1,1,1,1,1,...",
            "a: [" + "1," * 100_000 + "]",
            "1:19999: the file has too many values; at most 10000 are allowed, and each alias "
            "counts as a copy of its value",
        ),
        whole(
            "two documents",
            "...⏎---⏎...",
            top() + "---\n" + top(),
            "6:1: a second document begins here; a space file must be one document",
        ),
        whole(
            "UTF-16",
            "as PowerShell writes it",
            ("\ufeff" + top()).encode("utf-16-le"),
            "1:1: is not UTF-8 text (byte 0xff); save it as UTF-8",
        ),
        whole(
            "latin-1",
            "# Größe",
            ("# Größe\n" + top()).encode("latin-1"),
            "1:5: is not UTF-8 text (byte 0xf6); save it as UTF-8",
        ),
        whole(
            "binary",
            "\\x7fELF\\x02\\x01...",
            b"\x7fELF\x02\x01\x01\x00\x00",
            "1:1: contains the control character U+007F, which YAML does not allow; is this a "
            "text file?",
        ),
        whole(
            "random bytes",
            "every byte once",
            bytes(range(256)),
            "3:115: is not UTF-8 text (byte 0x80); save it as UTF-8",
        ),
        whole(
            "an empty file",
            "",
            "",
            "1:1: the file is empty; a space file is a mapping with `trainer:`, `data:`, ...",
        ),
        whole(
            "only comments",
            "# later",
            "# later\n",
            "1:1: the file is empty; a space file is a mapping with `trainer:`, `data:`, ...",
        ),
        whole(
            "a list",
            "- a",
            "- a\n",
            "1:1: a space file must be a mapping with keys name, trainer, data, objective, "
            "constraints, search, scheduler, repeats,"
            " limits, checkpoints, bundle, runtime_env, trackers, space, got [a]",
        ),
        whole(
            "text",
            "hello",
            "hello\n",
            "1:1: a space file must be a mapping with keys name, trainer, data, objective, "
            "constraints, search, scheduler, repeats,"
            " limits, checkpoints, bundle, runtime_env, trackers, space, got hello",
        ),
        whole("a bare key", "? [a]⏎: b", "? [a]\n: b\n", "1:3: a key must be a name, got [a]"),
        whole(
            "over 1 MB",
            "a million and one #",
            "#" * 1_000_001,
            "1:1: is too large; a space file may have at most 1 MB",
        ),
        typed("no such file", "validate run", ["absent.yaml"], "absent.yaml:1:1: no such file"),
        typed(
            "a directory",
            "validate run",
            ["folder"],
            "folder:1:1: must be a regular file, not a directory or a pipe",
        ),
        typed(
            "a pipe",
            "validate run",
            ["pipe"],
            "pipe:1:1: must be a regular file, not a directory or a pipe",
        ),
    ),
    "The command line": (
        typed(
            "--set without a value",
            "validate run",
            ["space.yaml", "--set", "limits.max_trials"],
            "--set limits.max_trials: must be key.path=value, such as limits.max_trials=8",
        ),
        typed(
            "--set of an unknown key",
            "validate run",
            ["space.yaml", "--set", "limits.max_trils=4"],
            "--set limits.max_trils=4: limits.max_trils: unknown key; did you mean `max_trials`?",
        ),
        typed(
            "--set of a bad value",
            "validate run",
            ["space.yaml", "--set", "limits.max_trials=zero"],
            "--set limits.max_trials=zero: limits.max_trials: must be an integer of at least 1, "
            "got zero",
        ),
        typed(
            "--set of bounds that are reversed",
            "validate run",
            ["space.yaml", "--set", "space.params.eta={uniform: [1, 0]}"],
            "--set space.params.eta={uniform: [1, 0]}: params.eta: uniform needs lower < upper, "
            "got [1, 0]",
        ),
        typed(
            "--set of invalid YAML",
            "validate run",
            ["space.yaml", "--set", "search.seed=[1"],
            "--set search.seed=[1: not valid YAML: a `[` or `{` is not closed",
        ),
        typed(
            "--set of a key of a text value",
            "validate run",
            ["space.yaml", "--set", "trainer.loop=a:b"],
            "--set trainer.loop=a:b: trainer is xgboost, which has no key `loop`; set all of "
            "trainer instead",
        ),
        typed(
            "--set without a key",
            "validate run",
            ["space.yaml", "--set", "=1"],
            "--set =1: must be key.path=value, such as limits.max_trials=8",
        ),
        typed(
            "--set of a missing file",
            "run",
            ["space.yaml", "--set", "data.train=row.csv"],
            "--set data.train=row.csv: data.train: `row.csv` does not exist; did you mean "
            "`rows.csv`?",
        ),
        typed(
            "--dir that is a file",
            "run",
            ["space.yaml", "--dir", "rows.csv"],
            "--dir: rows.csv: is a file, but must be a folder",
        ),
        typed(
            "--dir in a file",
            "run",
            ["space.yaml", "--dir", "rows.csv/runs"],
            "--dir: rows.csv/runs: `rows.csv` is a file, but must be a folder",
        ),
        typed(
            "unknown option",
            "run",
            ["space.yaml", "--dri", "x"],
            "sweeps run: No such option '--dri'. (Did you mean one of: '--dir', '--metric'?)  "
            "(sweeps run --help)",
        ),
        typed(
            "no file",
            "run",
            [],
            "sweeps run: Missing argument 'FILE'.  (sweeps run --help)",
        ),
        typed(
            "unknown verb",
            "rnu",
            ["space.yaml"],
            "sweeps: No such command 'rnu'. Did you mean 'run'?  (sweeps --help)",
        ),
        typed(
            "--address without a cluster",
            "run",
            ["space.yaml", "--address", "127.0.0.1:1"],
            "--address: no Ray cluster can be reached at 127.0.0.1:1: [Errno 111] Connection "
            "refused",
        ),
        typed(
            "--address of a Ray Client",
            "run",
            ["space.yaml", "--address", "ray://head:10001"],
            "--address: ray://head:10001: Ray Client is not supported; run sweeps on a node of "
            "the cluster, or with `ray job "
            "submit`, with --address auto",
        ),
        typed(
            "--tracking-uri without a store",
            "run",
            ["space.yaml", "--tracking-uri", "htp://host:5000"],
            "--tracking-uri: htp://host:5000: MLflow has no store for `htp`; did you mean `http`?",
        ),
        typed(
            "--storage of another database",
            "run",
            ["space.yaml", "--storage", "mysql://me:secret@host/db"],
            "--storage: must be postgresql://USER@HOST/DATABASE, got 'mysql://me@host/db'",
        ),
        typed(
            "resume without a sweep",
            "resume",
            ["latest"],
            "latest: is neither a sweep's folder nor the name of a sweep in sweeps-runs; "
            "sweeps-runs has no sweeps",
        ),
    ),
}
