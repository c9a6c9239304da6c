"""Writes the tables of variables into the READMEs: `python tools/docs.py`, or `--check` to see whether they are up to date.

Their only source is meta/argument_specs.yml of each role.
"""

import pathlib
import sys

import yaml

PROJECT = pathlib.Path(__file__).resolve().parents[1]
TRAIN = "train_job_"
# What is seldom given: it stands in the role's README alone.
KEPT = tuple(TRAIN + name for name in (
    "program", "server_classes", "data_src", "lr_scale", "lr_factor", "lr_factor_epoch", "on_nan",
    "num_examples", "seed", "keep_checkpoints", "data_allocator", "job_id", "plan_only",
    "detach", "env", "collect_mb", "model_load_epoch", "model_load_job", "without",
    "restart_delay", "hosts_file", "groups_file", "data_sharding_file", "dmlc_interface",
    "ps_verbose", "root_port", "lease", "heartbeat_timeout", "start_timeout", "stall_timeout",
    "poll", "runs_dir"))


def options_of(role):
    """The documented variables of a role by name."""
    path = PROJECT / "roles" / role / "meta" / "argument_specs.yml"
    entries = yaml.safe_load(path.read_text())["argument_specs"]
    return (entries.get("main") or entries["defaults"]).get("options", {})


def rows(options, shown=str):
    """A line of a Markdown table for each variable; `shown` makes its name."""
    for name, option in options.items():
        text = " ".join(option["description"] if isinstance(option["description"], list) else [option["description"]])
        if "choices" in option and "`%s`" % option["choices"][0] not in text:
            text += " One of " + ", ".join("`%s`" % choice for choice in option["choices"]) + "."
        default = option.get("default", "")
        default = {True: "true", False: "false"}.get(default, default) if isinstance(default, bool) else default
        yield "| `%s` | %s | %s | %s |" % (shown(name), option["type"], "" if default == "" else "`%s`" % (default,),
                                           " ".join(text.split()).replace("|", "\\|"))


def table(options, shown=str):
    """The whole table."""
    return "\n".join(["| name | type | default | meaning |", "|---|---|---|---|", *rows(options, shown)])


def between(text, marker, content):
    """`text` with `content` between the comments <!-- marker --> and <!-- /marker -->."""
    begin, end = "<!-- %s -->" % marker, "<!-- /%s -->" % marker
    head, rest = text.split(begin, 1)
    return head + begin + "\n" + content + "\n" + end + rest.split(end, 1)[1]


def wanted():
    """{path of a README: what it should hold}."""
    knobs = options_of("train_job")
    readme = PROJECT / "README.md"
    pages = {readme: between(readme.read_text(), "knobs", table(
        {name: option for name, option in knobs.items() if name not in KEPT}, lambda name: name[len(TRAIN):]))}
    for path in sorted((PROJECT / "roles").glob("*/README.md")):
        options = {name: options_of("train_job")[name] for name in KEPT} if path.parent.name == "train_job" else options_of(
            path.parent.name)
        pages[path] = between(path.read_text(), "variables", table(options))
    return pages


def main(check):
    """Writes what has changed, or names it; the exit status is 1 when something is stale."""
    stale = [path for path, text in wanted().items() if path.read_text() != text]
    for path in stale:
        print("%s: %s" % ("stale, run `make docs`" if check else "written", path.relative_to(PROJECT)))
        if not check:
            path.write_text(wanted()[path])
    return int(bool(stale) and check)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
