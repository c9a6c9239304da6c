"""A knob can be set in group_vars/all.yml, in the inventory, and on the command line."""


def plan(project, *arguments):
    result = project.run("train.yml", "-e", "plan_only=true", *arguments)
    assert result.code == 0, result.output
    return result.output


def test_the_nearest_value_wins(project):
    """A value of the inventory wins over the defaults, and the command line over both."""
    files = {
        project.path / "group_vars" / "all.yml": "train_job_batch_size: 7",
        project.path / "inventory" / "local" / "group_vars" / "all.yml": "train_job_num_epochs: 9",
    }
    shipped = {path: path.read_text() for path in files}
    try:
        for path, line in files.items():
            path.write_text("%s\n%s\n" % (shipped[path], line))
        output = plan(project)
        assert "batch size 7 per worker" in output and "9 epochs" in output, output
        output = plan(project, "-e", "batch_size=9")
        assert "batch size 9 per worker" in output, output
    finally:
        for path, text in shipped.items():
            path.write_text(text)
