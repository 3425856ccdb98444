"use strict";
// The views of the page: the list of sweeps (#), one sweep (#NAME), and one trial (#NAME/ID). The server renders them, and escapes all texts.

const main = document.getElementById("main"), dialog = document.getElementById("trial");
let view = {}; // the current view: {sweep, query, control}

function say(text) {
  const place = document.getElementById("message");
  place.textContent = text;
  place.hidden = false;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { place.hidden = true; }, 6000);
}

const attempt = async action => { try { await action(); } catch (error) { say(error.message); } };

// ---- the list of sweeps, and one sweep

async function refresh() {
  const current = view, query = String(current.query);
  const fresh = await Server.fragment(current.sweep ? `${Server.address(current.sweep)}?${query}` : "sweeps");
  if (view !== current || query !== String(current.query)) return; // the reader has gone on meanwhile
  if (main.view === current) return renew(main, fresh);
  main.view = current;
  main.replaceChildren(fresh);
  for (const figure of main.querySelectorAll("figure")) seen.observe(figure);
}

// Replaces the parts of a view that change.
function renew(place, fresh) {
  for (const part of place.querySelectorAll("[data-live]")) part.replaceWith(fresh.getElementById(part.id));
}

async function follow() {
  await refresh();
  redraw("figure");
  if (dialog.open) await showTrial(dialog.trial, false);
}

// Shows another part of the table of trials.
async function choose(settings) {
  for (const [name, value] of Object.entries(settings)) view.query.set(name, value);
  await refresh();
  redraw("figure:has([name=trials]:checked)");
}

// ---- figures

const seen = new IntersectionObserver(entries => {
  for (const {target, isIntersecting} of entries) { target.visible = isIntersecting; load(target); }
}, {rootMargin: "300px"});

function redraw(selector) {
  for (const figure of main.querySelectorAll(selector)) { figure.drawn = false; load(figure); }
}

async function load(figure) {
  if (figure.drawn || figure.loading || !figure.visible) return;
  figure.drawn = figure.loading = true;
  const query = new URLSearchParams(new FormData(figure.querySelector("form"))), place = figure.querySelector(".plot");
  if (query.has("trials")) query.set("trials", [...main.querySelectorAll("[data-trial]")].map(row => row.dataset.trial).join(","));
  try {
    const {plot, note} = await Server.json(`${Server.address(view.sweep, "figures", figure.dataset.figure)}?${query}`);
    figure.querySelector(".note").textContent = note;
    figure.classList.toggle("empty", !plot.data);
    place.hidden = !plot.data;
    if (query.has("log") && plot.data) plot.layout.yaxis.type = "log";
    if (plot.data) await Figures.draw(place, plot);
    if (plot.data && !figure.clicks) figure.clicks = place.on("plotly_click", ({points}) => { if (points?.[0]?.customdata) show(points[0].customdata); });
  } catch (error) { say(error.message); }
  figure.loading = false;
  load(figure); // a change has come meanwhile
}

// ---- one trial

const show = trial => { location.hash = `${encodeURIComponent(view.sweep)}/${trial}`; };

async function showTrial(trial, isNew = true) {
  const {sweep} = view, fresh = await Server.fragment(Server.address(sweep, "trials", trial));
  if (addressed()[1] !== trial || (!isNew && !dialog.open)) return; // the reader has closed the trial meanwhile
  dialog.trial = trial;
  if (isNew) dialog.replaceChildren(fresh); else renew(dialog, fresh);
  if (!dialog.open) dialog.showModal();
  const {plot} = await Server.json(`${Server.address(sweep, "figures", "curves")}?trials=${encodeURIComponent(trial)}`);
  const place = dialog.querySelector(".plot");
  place.hidden = !plot.data?.length;
  if (!place.hidden) await Figures.draw(place, plot);
}

async function send(name, command) {
  const {text} = await Server.command(view.sweep, JSON.parse(command));
  say(text ? `${name}: ${text}.` : `Sent: ${name}. The sweep follows when it can.`);
}

// ---- what the reader does

document.addEventListener("click", ({target}) => attempt(async () => {
  const element = target.closest("[data-set], [data-command], [data-trial]");
  if (!element) return;
  const {set, command, question, trial} = element.dataset;
  if (set) await choose(Object.fromEntries(new URLSearchParams(set)));
  else if (trial) show(trial);
  else if (!question || confirm(question)) await send(element.title || element.textContent, command);
}));
main.addEventListener("input", ({target}) => {
  if (target.name === "filter") attempt(() => choose({filter: target.value, page: 0}));
});
main.addEventListener("change", ({target}) => {
  const figure = target.closest("figure");
  if (figure) { figure.visible = true; figure.drawn = false; load(figure); }
});
dialog.addEventListener("close", () => {
  if (location.hash.includes("/")) location.hash = location.hash.split("/")[0];
});

// The part of the address after `#`, decoded. A part that is not encoded well is taken as it is.
function addressed() {
  return location.hash.slice(1).split("/").map(part => { try { return decodeURIComponent(part); } catch { return part; } });
}

async function route() {
  const [sweep, trial] = addressed();
  if (view.sweep !== sweep) {
    view.control?.abort();
    const current = view = {sweep, query: new URLSearchParams(), control: new AbortController()};
    document.title = sweep ? `${sweep} · sweeps` : "sweeps";
    const status = text => { if (view === current) document.getElementById("live").textContent = text; };
    Server.listen(sweep, () => attempt(follow), status, current.control.signal);
  }
  if (trial) await showTrial(trial);
  else if (dialog.open) dialog.close();
}

Figures.switchWith(document.querySelector(".theme"));
addEventListener("hashchange", () => attempt(route));
attempt(route);
