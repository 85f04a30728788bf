"""Keep a host's rights after a ban: by her token, her session, an open stream, and by lifting the ban herself."""

from __future__ import annotations

from tests.adversarial.api_ground import Ground

STREAMS = ("/events?since_token=now", "/live/-/staff")


def attack(ground: Ground) -> None:
    hal = ground.account("hal", "staff")
    with ground.client() as http:
        calls = [path for path, told in http.get("/openapi.json").json()["paths"].items() if "get" in told]
        calls = [path.replace("{leaderboard}", "transpose").replace("{user_id}", "hal") for path in calls]
        calls = [path for path in calls if path.startswith(("/admin", "/bot/may", "/metrics")) and "{" not in path]
        before = [path for path in calls if http.get(path, headers=hal.as_host).status_code == 200]
        if len(before) < 5:
            ground.fault(f"before the ban only {before} answered")
        with (
            http.stream("GET", STREAMS[0], headers=hal.as_host) as feed,
            http.stream("GET", STREAMS[1], headers=hal.browser) as page,
        ):
            lines = [feed.iter_lines(), page.iter_lines()]
            for line in lines:
                next(line)
            ground.store.people.ban(hal.person.id, "sold her token", by="root")
            for line in lines:
                if any("staff." in said for said in line):  # it ends, or the patience of this client does
                    ground.fault("a stream went on with news for a banned host")
        for path in calls:
            for headers in (hal.as_host, {**hal.as_host, "X-Kbslurm-Acting-For": "person:hal"}, hal.browser):
                if http.get(path, headers=headers).status_code == 200:
                    ground.fault(f"{path} answers a banned host")
        for method, path in (
            ("DELETE", "/admin/ban/hal"),
            ("POST", "/admin/stop"),
            ("POST", "/admin/ban/ada"),
            ("POST", "/staff/unban"),
        ):
            if (status := http.request(method, path, headers={**hal.as_host, **hal.browser}).status_code) < 400:
                ground.fault(f"{method} {path} answers {status} to a banned host")
    found = ground.store.people.find("hal")
    if found is None or found.banned_at is None or not ground.store.settings.accepts_jobs():
        ground.fault("she lifted her ban, or paused the service")
