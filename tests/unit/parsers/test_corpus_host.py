"""The right values of recorded outputs of host tools, worked out by hand."""

from tests.corpus import sample


@sample("sysstat/026_numastat_plain.txt", "numastat")
def test_numastat_pages(data, skipped):
    nodes = data["tables"][0]["nodes"]
    hit, miss = nodes["0"]["numa_hit_pages"], nodes["0"]["numa_miss_pages"]
    assert (hit, miss) == (201272180, 13292062)
    assert round(100 * miss / (hit + miss), 2) == 6.19
    assert nodes["1"]["other_node_pages"] == 29744759
    assert skipped == []


@sample("sysstat/027_numastat_n_MB.txt", "numastat")
def test_numastat_mb(data, skipped):
    nodes = data["tables"][0]["nodes"]
    assert list(nodes) == ["0", "1", "total"]
    assert nodes["0"]["numa_hit_bytes"] == round(5148653259.43 * 2**20)
    assert nodes["total"]["interleave_hit_bytes"] == round(192.61 * 2**20)
    assert skipped == []


def table(data, name):
    return next(each for each in data["tables"] if each["name"] == name)


@sample("sysstat/001_mpstat_centos7_12h.txt", "mpstat")
def test_mpstat_with_a_12_hour_clock(data, skipped):
    (row,) = table(data, "cpu")["rows"]
    assert (row["time"], row["cpu"]) == ("15:14:20", "all")
    assert (row["usr_percent"], row["idle_percent"]) == (0.23, 99.39)
    assert data["host"]["cpus"] == 1 and data["host"]["date"] == "03/11/2022"
    assert skipped == []


@sample("sysstat/002_mpstat_A_2_5_12h.txt", "mpstat")
def test_mpstat_with_interrupts(data, skipped):
    cpu = table(data, "cpu")
    averages = {row["cpu"]: row for row in cpu["averages"]}
    assert {name: row["idle_percent"] for name, row in averages.items()} == {
        "all": 99.6,
        "0": 99.6,
    }
    assert averages["all"]["usr_percent"] == 0.1 and len(cpu["rows"]) == 10
    assert [row["intr_per_s"] for row in table(data, "cpu_interrupts")["averages"]] == [
        56.76, 52.95,
    ]  # fmt: skip
    assert table(data, "soft_interrupts")["averages"][0]["timer_per_s"] == 34.13
    assert skipped == []


@sample("sysstat/004_pidstat_centos7_12h.txt", "pidstat")
def test_pidstat_with_a_12_hour_clock(data, skipped):
    rows = table(data, "task_cpu")["rows"]
    # 43 lines that are not blank: the host's, the heading and the tasks.
    assert len(rows) == 41 and table(data, "task_cpu")["averages"] == []
    assert {row["time"] for row in rows} == {"12:06:39"}
    docker = next(row for row in rows if row["pid"] == 1221)
    assert (docker["command"], docker["usr_percent"], docker["cpu_percent"]) == (
        "dockerd-current", 0.06, 0.09,
    )  # fmt: skip
    assert skipped == []


@sample("sysstat/006_pidstat_ht_generic.txt", "pidstat")
def test_pidstat_with_seconds(data, skipped):
    (cpu,) = table(data, "task_cpu")["rows"]
    (times,) = table(data, "task_times")["rows"]
    assert cpu["t_s"] == times["t_s"] == 1692579199
    assert (cpu["pid"], cpu["wait_percent"], cpu["cpu"]) == (1, 0.08, "0")
    assert (times["user_s"], times["system_s"]) == (2.89, 4.26)
    assert skipped == []


@sample("sysstat/007_mpstat_expected_base.txt", "mpstat")
def test_mpstat_base(data, skipped):
    (row,) = table(data, "cpu")["rows"]
    assert (row["time"], row["cpu"]) == ("12:53:20", "all")
    values = [value for name, value in row.items() if name.endswith("_percent")]
    assert values == [1.49, 39.91, 0.83, 0.94, 0.43, 0.40, 0, 0, 0, 56.00]
    assert row["idle_percent"] == 56 and skipped == []


@sample("sysstat/009_mpstat_H_hybrid.txt", "mpstat")
def test_mpstat_while_cpus_come_and_go(data, skipped):
    cpu = table(data, "cpu")
    whole = [row for row in [*cpu["rows"], *cpu["averages"]] if row["cpu"] == "all"]
    assert len(whole) == 7
    assert whole[-1]["nice_percent"] == 17.5 and whole[-1]["idle_percent"] == 77.86
    assert [row["cpu"] for row in cpu["averages"]] == ["all", *map(str, range(9))]
    assert cpu["averages"][9]["iowait_percent"] == 4.79
    assert skipped == []


@sample("sysstat/011_pidstat_Hh.txt", "pidstat")
def test_pidstat_with_threads_in_one_line(data, skipped):
    only, times = data["tables"]
    # 26 lines that are not blank: the host's, two headings and the tasks.
    assert len(only["rows"]) + len(times["rows"]) == 23
    assert times["columns"][3:6] == ["user_s", "system_s", "guest_s"]
    task, thread, worker = only["rows"][:3]
    assert (task["tgid"], task["tid"], task["command"]) == (7900, None, "gnome-shell")
    assert (thread["tgid"], thread["tid"], thread["command"]) == (None, 7900, "|__gnome-shell")
    assert worker["command"] == "|__dconf worker" and worker["policy"] == "NORMAL"
    assert task["cpu_percent"] == 412.96 and task["rss_bytes"] == 259044 * 1024
    assert task["read_bytes_per_s"] == 411.81 * 1024 and task["t_s"] == 1591016002
    assert skipped == []


@sample("sysstat/012_pidstat_At_ALL_JSON.json", "pidstat")
def test_pidstat_json(data, skipped):
    assert data["host"]["host"] == "SYSSTAT.TEST"
    (record,) = data["statistics"]
    assert list(record)[:6] == [
        "timestamp", "task-cpu-load", "task-memory", "stack", "io", "context-switch",
    ]  # fmt: skip
    assert record["task-cpu-load"][2]["cpu"] == 1.25 and skipped == []


@sample("sysstat/014_pidstat_sigint.txt", "pidstat")
def test_pidstat_interrupted(data, skipped):
    switches = table(data, "task_switches")
    averages = {row["pid"]: row["cswch_per_s"] for row in switches["averages"]}
    assert averages == {8407: 15.01, 8741: 9.3}
    assert len(switches["rows"]) == 4 + 3 + 3 + 3 + 1 + 1
    assert table(data, "task_policy")["rows"] == [] and skipped == []


@sample("sysstat/016_sar_u.txt", "sar")
def test_sar_of_cpus(data, skipped):
    cpu = table(data, "cpu")
    assert len(cpu["averages"]) == 10
    assert cpu["averages"][0]["idle_percent"] == 79.29
    assert cpu["averages"][9] == {
        "cpu": "8", "user_percent": 9.31, "nice_percent": 0.21, "system_percent": 39.15,
        "iowait_percent": 0.0, "steal_percent": 4.21, "idle_percent": 46.27,
    }  # fmt: skip
    assert data["restarts"] == [{"time": "13:37:29", "cpus": 9}]
    assert data["comments"] == [{"time": "13:39:09", "comment": "Testing sysstat!"}]
    # 50 lines that are not blank: host, heading, restart, comment, averages, rows.
    assert len(cpu["rows"]) == 50 - 4 - 10 and skipped == []


@sample("sysstat/017_sar_CPUoffon.txt", "sar")
def test_sar_while_a_cpu_comes_and_goes(data, skipped):
    # 47 lines begin with Average:, one of them with headings.
    assert sum(len(each["averages"]) for each in data["tables"]) == 46
    cpu = table(data, "cpu")
    assert [row["cpu"] for row in cpu["rows"]] == ["all", "all", "all", "8"]
    assert cpu["averages"][0]["idle_percent"] == 79.13
    both = next(each for each in data["tables"] if each["columns"] == ["intr", "all", "cpu8"])
    assert both["rows"][0]["cpu8"] == 52.3 and data["restarts"] == []
    assert skipped == []


@sample("sysstat/019_sadf_j.json", "sadf")
def test_sadf_json(data, skipped):
    assert data["host"]["host"] == "SYSSTAT.TEST" and len(data["statistics"]) == 5
    first = data["statistics"][0]
    assert list(first)[:6] == [
        "timestamp", "cpu-load", "process-and-context-switch", "interrupts", "swap-pages", "paging",
    ]  # fmt: skip
    assert first["cpu-load"][0]["idle"] == 82.88 and first["timestamp"]["interval"] == 31
    assert data["comments"][0]["comment"]["com"] == "Testing sysstat!" and skipped == []


@sample("sysstat/021_sadf_d_semicolons.csv", "sadf")
def test_sadf_with_semicolons(data, skipped):
    fans, heat, volts = data["tables"]
    assert [row["speed_rpm"] for row in fans["rows"]] == [1283, 1347, 0, 1650]
    assert [row["temperature_celsius"] for row in heat["rows"]][:3] == [34, 30.5, 29.12]
    assert heat["rows"][0]["temp_percent"] == 48.57 and len(heat["rows"]) == 9
    assert heat["rows"][4]["device"] == "coretemp-isa-0000"
    assert [row["input_volts"] for row in volts["rows"]] == [3.33, 3.34, 3.31, 0.95]
    assert fans["rows"][0]["interval_s"] == 46
    assert data["restarts"] == [{"timestamp": "2018-08-29 09:33:38 UTC"}] and skipped == []


@sample("sysstat/022_iostat_x_12h.txt", "iostat")
def test_iostat(data, skipped):
    (report,) = data["reports"]
    assert report["cpu"]["idle_percent"] == 99.7 and report["time"] is None
    assert list(report["devices"]) == ["sda", "dm-0", "dm-1"]
    sda = report["devices"]["sda"]
    assert sda["read_bytes_per_s"] == 5.27 * 1024 and sda["await_s"] == 0.00088
    assert sda["avgrq_size_bytes"] == 52.53 * 512 and sda["util_percent"] == 0.01
    assert skipped == []


@sample("sysstat/024_perf_stat_csv_not_supported_comma_event.csv", "perf-stat")
def test_perf_stat_with_a_comma_in_an_event(data, skipped):
    events = {each["event"]: each for each in data["events"]}
    assert events["stalled-cycles-frontend"]["value"] is None
    instructions = events["instructions"]
    assert (instructions["metric"], instructions["metric_unit"]) == (2.16, "insn per cycle")
    assert round(instructions["value"] / events["cycles"]["value"], 2) == 2.16
    last = data["events"][-1]
    assert last["event"] == "cpu/event=0x3c,umask=0x0/"
    assert (last["value"], last["running_percent"]) == (123456, 50)
    assert events["task-clock"]["unit"] == "msec" and skipped == []


@sample("telemetry_jsonl/001_sb_monitor.jsonl", "superbench-monitor")
def test_superbench_monitor(data, skipped):
    first = data["samples"][0]
    assert list(first["gpus"]) == list("01234567")
    assert first["gpus"]["0"]["usage_percent"] == 56
    assert {gpu["power_limit_watts"] for gpu in first["gpus"].values()} == {250}
    assert first["interfaces"]["ib0"]["receive_bytes_per_s"] == 7.093990777192219e-05 * 2**20
    assert first["cpu_usage_percent"] == 356.05527547060314 and first["other"] == {}
    assert skipped == []
