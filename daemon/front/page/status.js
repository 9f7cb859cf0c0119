"use strict";
/* Reads /metrics every two seconds and draws what changed. What comes from there is only ever put
 * into the page as text. */

const EVERY_MS = 2000, POINTS = 150, WIDTH = 300, HEIGHT = 100;
const SVG = "http://www.w3.org/2000/svg";

/* ---- Prometheus' text format ---- */

function unquote(text) {
    return text.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
}

/* {name: [{labels, value}]} */
function parse(text) {
    const families = new Map();
    for (const line of text.split("\n")) {
        const sample = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
        if (!sample)
            continue;
        const labels = {};
        for (const [, name, value] of (sample[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g))
            labels[name] = unquote(value);
        if (!families.has(sample[1]))
            families.set(sample[1], []);
        families.get(sample[1]).push({labels, value: Number(sample[3].replace("Inf", "Infinity"))});
    }
    return families;
}

/* The samples of a name that have these labels. */
function select(families, name, wanted = {}) {
    return (families.get(name) || []).filter(({labels}) =>
        Object.entries(wanted).every(([key, value]) => labels[key] === value));
}

function sum(families, name, wanted) {
    return select(families, name, wanted).reduce((total, {value}) => total + value, 0);
}

/* What one is now, or null where there is none. */
function gauge(families, name) {
    const found = select(families, name);
    return found.length ? found[0].value : null;
}

/* ---- What happened between two readings ---- */

function rate(now, before, name, wanted) {
    const grown = sum(now.families, name, wanted) - sum(before.families, name, wanted);
    return grown < 0 ? null : grown / (now.seconds - before.seconds); /* a new server counts anew */
}

function buckets(families, name, wanted) {
    const counts = new Map();
    for (const {labels, value} of select(families, `${name}_bucket`, wanted)) {
        const bound = Number(labels.le.replace("Inf", "Infinity"));
        counts.set(bound, (counts.get(bound) || 0) + value);
    }
    return [...counts].sort(([a], [b]) => a - b);
}

/* The quantile of what was added since, by straight lines within buckets; null: nothing was. */
function quantile(part, now, before, name, wanted = {}) {
    const old = before ? new Map(buckets(before.families, name, wanted)) : new Map();
    const counts = buckets(now.families, name, wanted).map(([le, n]) => [le, n - (old.get(le) || 0)]);
    const total = counts.length ? counts[counts.length - 1][1] : 0;
    if (!(total > 0))
        return null;
    let below = 0, bound = 0;
    for (const [le, n] of counts) {
        if (n >= part * total)
            return Number.isFinite(le) ? bound + (le - bound) * (part * total - below) / (n - below)
                                       : bound;
        below = n;
        bound = le;
    }
    return bound;
}

/* ---- Numbers for people ---- */

function scaled(value, step, units) {
    let at = 0;
    for (; Math.abs(value) >= step && at < units.length - 1; at++)
        value /= step;
    const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : Math.abs(value) >= 10 ? 1 : 2;
    return `${value.toFixed(digits)}${units[at] ? " " + units[at] : ""}`;
}

const count = (n) => scaled(n, 1000, ["", "k", "M", "G"]);
const bytes = (n) => scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const seconds = (n) => scaled(n * 1e6, 1000, ["µs", "ms", "s"]);
const percent = (n) => `${(100 * n).toFixed(0)} %`;

function ratio(families, part, whole) {
    const value = gauge(families, part), of = gauge(families, whole);
    return value === null || !of ? null : value / of;
}

/* ---- Charts ---- */

const CHARTS = [
    {title: "Requests per second", show: count, series: {
        answered: (now, before) => rate(now, before, "xopd_requests_total"),
        failed: (now, before) => rate(now, before, "xopd_requests_total") -
            rate(now, before, "xopd_requests_total", {status: "OK"}),
        rejected: (now, before) => rate(now, before, "xopd_requests_rejected_total"),
    }},
    {title: "Time in queue", show: seconds, series: {
        "median": (now, before) => quantile(0.5, now, before, "xopd_request_queue_seconds"),
        "99 %": (now, before) => quantile(0.99, now, before, "xopd_request_queue_seconds"),
    }},
    {title: "Time running", show: seconds, series: {
        "median": (now, before) => quantile(0.5, now, before, "xopd_request_run_seconds"),
        "99 %": (now, before) => quantile(0.99, now, before, "xopd_request_run_seconds"),
    }},
    {title: "Bytes in per second", show: bytes, series: {
        inline: (now, before) => rate(now, before, "xopd_tensor_bytes_total", {path: "inline", direction: "in"}),
        shm: (now, before) => rate(now, before, "xopd_tensor_bytes_total", {path: "shm", direction: "in"}),
        resident: (now, before) => rate(now, before, "xopd_tensor_bytes_total", {path: "resident", direction: "in"}),
    }},
    {title: "Bytes out per second", show: bytes, series: {
        inline: (now, before) => rate(now, before, "xopd_tensor_bytes_total", {path: "inline", direction: "out"}),
        shm: (now, before) => rate(now, before, "xopd_tensor_bytes_total", {path: "shm", direction: "out"}),
        resident: (now, before) => rate(now, before, "xopd_tensor_bytes_total", {path: "resident", direction: "out"}),
    }},
    {title: "Requests per launch", show: count, series: {
        mean: (now, before) => {
            const launches = rate(now, before, "xopd_launches_total");
            return launches > 0 ? rate(now, before, "xopd_request_batch_size_count") / launches : null;
        },
    }},
    {title: "Now", show: count, series: {
        connections: ({families}) => gauge(families, "xopd_connections"),
        "in flight": ({families}) => gauge(families, "xopd_requests_in_flight"),
    }},
    {title: "Memory in use", show: percent, most: 1, series: {
        inbox: ({families}) => ratio(families, "xopd_inbox_used_bytes", "xopd_inbox_bytes"),
        residents: ({families}) => ratio(families, "xopd_resident_bytes", "xopd_resident_limit_bytes"),
        device: ({families}) => {
            const free = ratio(families, "xopd_device_memory_free_bytes", "xopd_device_memory_bytes");
            return free === null ? null : 1 - free;
        },
    }},
    {title: "GPU", show: percent, most: 1, optional: true, series: {
        busy: ({families}) => gauge(families, "xopd_gpu_utilization_ratio"),
        "memory busy": ({families}) => gauge(families, "xopd_gpu_memory_utilization_ratio"),
    }},
    {title: "GPU temperature", show: (n) => `${n.toFixed(0)} °C`, optional: true, series: {
        temperature: ({families}) => gauge(families, "xopd_gpu_temperature_celsius"),
    }},
    {title: "GPU power", show: (n) => `${n.toFixed(0)} W`, optional: true, series: {
        power: ({families}) => gauge(families, "xopd_gpu_power_watts"),
        limit: ({families}) => gauge(families, "xopd_gpu_power_limit_watts"),
    }},
];

function element(parent, name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined)
        made.textContent = text;
    if (className)
        made.className = className;
    parent.append(made);
    return made;
}

function shape(parent, name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes))
        made.setAttribute(key, value);
    parent.append(made);
    return made;
}

function build(chart) {
    const figure = element(document.getElementById("charts"), "figure");
    const caption = element(figure, "figcaption");
    element(caption, "span", chart.title);
    chart.range = element(caption, "span", "", "range");
    const svg = shape(figure, "svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none",
                                      role: "img", "aria-label": chart.title});
    for (const y of [1, HEIGHT / 2, HEIGHT - 1])
        shape(svg, "line", {x1: 0, x2: WIDTH, y1: y, y2: y, class: "grid"});
    const legend = element(figure, "ul", undefined, "legend");
    chart.figure = figure;
    figure.hidden = Boolean(chart.optional);
    chart.lines = Object.entries(chart.series).map(([name, value], i) => ({
        name, value, points: [], group: shape(svg, "g", {class: `series${i}`}),
        label: element(legend, "li", name, `series${i}`),
    }));
}

/* A line for each stretch without gaps; a point alone is a short one. */
function draw(line, most) {
    const stretches = [];
    let open = null;
    line.points.forEach((value, i) => {
        if (value === null) {
            open = null;
            return;
        }
        if (!open)
            stretches.push(open = []);
        const x = WIDTH - (line.points.length - 1 - i) * WIDTH / (POINTS - 1);
        const y = HEIGHT - 1 - (HEIGHT - 2) * value / most;
        open.push(`${x.toFixed(1)},${y.toFixed(1)}`);
        if (open.length === 1)
            open.push(`${(x + 0.5).toFixed(1)},${y.toFixed(1)}`);
    });
    line.group.replaceChildren();
    for (const points of stretches)
        shape(line.group, "polyline", {points: points.join(" ")});
}

function update(chart, now, before) {
    for (const line of chart.lines) {
        const value = now && before ? line.value(now, before) : null;
        line.points.push(Number.isFinite(value) ? value : null);
        line.points.splice(0, line.points.length - POINTS);
    }
    const values = chart.lines.flatMap(({points}) => points.filter((p) => p !== null));
    const highest = chart.most || Math.max(...values, 0), most = highest || 1;
    chart.range.textContent = values.length ? `to ${chart.show(highest)}` : "";
    if (chart.optional && values.length)
        chart.figure.hidden = false;
    for (const line of chart.lines) {
        const last = line.points[line.points.length - 1];
        line.label.textContent = `${line.name} ${last === null ? "–" : chart.show(last)}`;
        draw(line, most);
    }
}

/* ---- The rest of the page ---- */

function tell(text, good) {
    const state = document.getElementById("state");
    state.textContent = text;
    state.className = good ? "good" : "bad";
}

function row(body, now, before, {operator, pass}) {
    const wanted = {operator, pass}, families = now.families;
    const requests = sum(families, "xopd_requests_total", wanted);
    const of = (part, name) => {
        const value = quantile(part, now, null, name, wanted);
        return value === null ? "–" : seconds(value);
    };
    const launches = sum(families, "xopd_launches_total", wanted);
    const perSecond = before ? rate(now, before, "xopd_requests_total", wanted) : null;
    const made = element(body, "tr");
    for (const text of [operator, pass, requests.toLocaleString("en"),
        (requests - sum(families, "xopd_requests_total", {...wanted, status: "OK"})).toLocaleString("en"),
        perSecond === null ? "–" : count(perSecond),
        of(0.5, "xopd_request_queue_seconds"), of(0.5, "xopd_request_run_seconds"),
        of(0.99, "xopd_request_run_seconds"),
        launches > 0 ? (sum(families, "xopd_request_batch_size_count", wanted) / launches).toFixed(1) : "–"])
        element(made, "td", text);
}

function tabulate(now, before) {
    const body = document.querySelector("#operators tbody");
    const ops = select(now.families, "xopd_requests_total", {status: "OK"}).map(({labels}) => labels);
    body.replaceChildren();
    for (const labels of ops)
        row(body, now, before, labels);
    document.getElementById("none").hidden = ops.length > 0;
    document.getElementById("operators").hidden = ops.length === 0;
    const reasons = ["connections", "requests"].flatMap((what) =>
        select(now.families, `xopd_${what}_rejected_total`).filter(({value}) => value > 0)
            .map(({labels, value}) => `${what}, ${labels.reason}: ${value.toLocaleString("en")}`));
    document.getElementById("rejected").textContent = reasons.join(" · ") || "Nothing.";
}

function describe(now) {
    const [build] = select(now.families, "xopd_build_info");
    const [device] = select(now.families, "xopd_device_info");
    document.getElementById("version").textContent = build ? build.labels.version : "";
    document.getElementById("device").textContent = device
        ? `${device.labels.backend} on ${device.labels.device} (${device.labels.runtime})` : "";
}

async function read() {
    const metrics = await fetch("metrics", {cache: "no-store"});
    if (!metrics.ok)
        throw new Error(`/metrics answers ${metrics.status}`);
    const families = parse(await metrics.text());
    const ready = await fetch("readyz", {cache: "no-store"});
    return {families, seconds: performance.now() / 1000, ready: ready.ok, why: (await ready.text()).trim()};
}

let before = null;

async function look() {
    let now = null;
    try {
        now = await read();
        tell(now.why, now.ready);
        describe(now);
        tabulate(now, before);
    } catch (error) {
        tell(`no answer: ${error.message}`, false);
    }
    for (const chart of CHARTS)
        update(chart, now, before);
    before = now;
    setTimeout(look, EVERY_MS);
}

CHARTS.forEach(build);
look();
