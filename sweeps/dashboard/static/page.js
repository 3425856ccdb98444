"use strict";
// The views of the page: the list of sweeps (#), one sweep (#NAME), and one trial (#NAME/ID). All texts are inserted as text, never as HTML.

const main = document.getElementById("main"), dialog = document.getElementById("trial");
const WIDE = ["parallel", "timeline"], FIRST = ["history", "curves"], LOG = ["history", "curves", "slice"];
let view = null; // the current view: {sweep, refresh, stop}

function say(text) {
  const place = document.getElementById("message");
  place.textContent = text;
  place.hidden = false;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { place.hidden = true; }, 6000);
}

// A table of names and values. A long name is broken after a dot or an underscore.
function rowsTable(rows) {
  const name = text => make("td", {}, ...text.split(/(?<=[._])/).flatMap(part => [part, make("wbr")]));
  return make("table", {}, make("tbody", {}, ...rows.map(([text, value]) => make("tr", {}, name(text), make("td", {textContent: value})))));
}

const ago = text => { const date = new Date(text); return Number.isNaN(date.getTime()) ? "" : date.toLocaleString(undefined, {dateStyle: "medium", timeStyle: "short"}); };
const counts = trials => Object.entries(trials).filter(([, n]) => n).map(([state, n]) => `${n.toLocaleString("en")} ${state}`).join(", ");
const badge = state => make("span", {className: `state ${state}`, textContent: state});

// ---- the list of sweeps

async function showList(isCurrent) {
  const {root, sweeps} = await Server.json("sweeps");
  if (!isCurrent()) return sweeps; // the reader has gone to another view meanwhile
  const hasMlflow = sweeps.some(sweep => Object.keys(sweep.mlflow ?? {}).length);
  const names = ["sweep", "state", "trials", "best", "metric", "began", ...(hasMlflow ? ["MLflow"] : [])];
  const head = make("tr", {}, ...names.map(text => make("th", {textContent: text})));
  const rows = sweeps.map(sweep => make("tr", {}, ...[
    make("a", {href: `#${encodeURIComponent(sweep.sweep)}`, textContent: sweep.sweep}), badge(sweep.state), counts(sweep.trials),
    sweep.best ? number(sweep.best.value) : "", sweep.metric ?? "", ago(sweep.began), ...(hasMlflow ? [mlflowLinks(sweep.mlflow ?? {})] : []),
  ].map(content => make("td", {}, content))));
  document.title = "sweeps";
  main.replaceChildren(
    make("h1", {textContent: "Sweeps"}),
    sweeps.length ? make("table", {id: "sweeps"}, make("thead", {}, head), make("tbody", {}, ...rows))
      : make("p", {textContent: "There are no sweeps yet. `sweeps run space.yaml` starts one."}),
    make("p", {className: "note", textContent: `The sweeps in ${root}`}),
  );
  return sweeps;
}

function mlflowLinks(pages) {
  const first = Object.entries(pages).slice(0, 1);
  return make("span", {}, ...first.map(([, href]) => make("a", {href, target: "_blank", rel: "noopener", textContent: "open"})));
}

// ---- one sweep

class SweepView {
  constructor(sweep) {
    this.sweep = sweep;
    this.cards = [];
    this.seen = new IntersectionObserver(entries => {
      for (const {target, isIntersecting} of entries) { target.card.visible = isIntersecting; if (isIntersecting) this.load(target.card); }
    }, {rootMargin: "300px"});
    this.head = make("section");
    this.first = make("div", {className: "figures"});
    this.rest = make("div", {className: "figures"});
    const trials = make("section", {id: "trials"});
    this.table = new TrialTable(trials, trial => `${encodeURIComponent(sweep)}/${trial}`, () => this.filtered());
    main.replaceChildren(this.head, this.first, make("h2", {textContent: "Trials"}), trials, this.rest);
  }

  // Shows the sweep as the server has read it. Returns what was shown, as a list.
  async refresh() {
    const {rows = [], latest = 0} = this.data ?? {};
    const data = await Server.json(`${Server.address(this.sweep)}?since=${latest}`);
    data.rows = [...new Map([...rows, ...data.rows].map(row => [row[0], row])).values()]; // the server sends the rows that have changed
    if (view !== this) return [data]; // the reader has gone to another view meanwhile
    this.data = data;
    document.title = `${this.sweep} · sweeps`;
    this.showHead();
    this.table.show(this.data.columns, this.data.rows, this.data.best?.trial);
    if (!this.cards.length) this.makeCards();
    this.fillSelects();
    for (const card of this.cards) { card.stale = true; if (card.visible) this.load(card); }
    if (dialog.open) showTrial(this.sweep, dialog.trial, false);
    return [data];
  }

  showHead() {
    const d = this.data, best = d.best;
    const facts = [
      [counts(d.trials) || "none", d.total ? `of ${d.total.toLocaleString("en")} trials` : "trials"],
      ...(best ? [[number(best.value), `best ${d.metric}, trial ${best.trial}`]] : []),
      [d.algorithm ?? "", "algorithm"], [ago(d.began), "began"], ...(d.seconds ? [[`${Math.round(d.seconds)} s`, "duration"]] : []),
    ].filter(([value]) => value);
    const links = Object.entries(d.mlflow).map(([title, href]) => make("a", {href, target: "_blank", rel: "noopener", textContent: `MLflow: ${title}`}));
    const open = this.head.querySelector("details")?.open, typed = this.head.querySelector("details input")?.value;
    if (this.head.contains(document.activeElement) && document.activeElement.tagName === "INPUT") return; // the reader is typing
    this.head.replaceChildren(
      make("h1", {}, this.sweep, " ", badge(d.state)),
      make("div", {className: "facts"}, ...facts.map(([value, name]) => make("div", {}, make("b", {textContent: value}), make("span", {textContent: name})))),
      ...(d.running ? [this.commands()] : []), ...(d.running && d.may_command ? [this.enqueue(open, typed)] : []),
      ...(links.length ? [make("p", {className: "bar"}, ...links)] : []),
      ...d.notes.map(text => make("p", {className: "note", textContent: text})),
    );
  }

  commands() {
    if (!this.data.may_command)
      return make("p", {className: "note", textContent: "This server takes no commands, because other machines can reach it and it has no token."});
    const button = (text, command, question) => {
      const made = make("button", {type: "button", textContent: text});
      made.addEventListener("click", () => { if (!question || confirm(question)) send(this.sweep, command, text); });
      return made;
    };
    return make("div", {className: "bar"},
      this.data.state === "paused" ? button("Resume", {command: "resume"}) : button("Pause", {command: "pause"}),
      button("Stop the sweep", {command: "stop"}, `Stop ${this.sweep}? \`sweeps resume\` can continue it later.`));
  }

  enqueue(open, typed) {
    const input = make("input", {className: "grow", value: typed ?? "", ariaLabel: "Values", placeholder: "eta=0.1, max_depth=4"});
    const form = make("form", {className: "bar"}, input, make("button", {textContent: "Enqueue"}));
    form.addEventListener("submit", event => {
      event.preventDefault();
      const names = Object.fromEntries(this.data.columns.map(column => [column.label, column.key]));
      const pairs = input.value.split(",").map(pair => pair.split("=").map(part => part.trim())).filter(pair => pair[0]);
      if (!pairs.length || pairs.some(pair => pair.length !== 2)) return say("Type values such as eta=0.1, max_depth=4.");
      const parameters = Object.fromEntries(pairs.map(([name, text]) => [names[name] ?? name, parsed(text)]));
      input.blur();
      send(this.sweep, {command: "enqueue", parameters}, "Enqueue");
    });
    return make("details", {open: Boolean(open)}, make("summary", {textContent: "Enqueue a configuration"}), form);
  }

  makeCards() {
    for (const {key, title} of this.data.figures) {
      const plot = make("div", {className: "plot"}), controls = make("span", {className: "controls"}), note = make("p", {className: "note"});
      const element = make("figure", {className: `card ${WIDE.includes(key) ? "wide" : ""}`}, make("h2", {textContent: title}), controls, plot, note);
      const card = {key, element, plot, controls, note, stale: true, visible: false, selects: {}, trials: []};
      element.dataset.figure = key;
      element.card = card;
      for (const axis of {slice: ["name"], contour: ["x", "y"]}[key] ?? []) {
        const select = make("select", {ariaLabel: `${title}: ${axis}`});
        select.addEventListener("change", () => { card.stale = true; this.load(card); });
        card.selects[axis] = select;
        controls.append(select);
      }
      if (LOG.includes(key)) controls.append(this.logSwitch(card));
      if (key === "curves") controls.append(this.filterSwitch(card));
      (FIRST.includes(key) ? this.first : this.rest).append(element);
      this.cards.push(card);
      this.seen.observe(element);
    }
  }

  logSwitch(card) {
    const box = make("input", {type: "checkbox"});
    box.addEventListener("change", () => { card.log = box.checked; this.draw(card); });
    return make("label", {}, box, " log axis");
  }

  filterSwitch(card) {
    const box = make("input", {type: "checkbox"});
    box.addEventListener("change", () => { card.filtered = box.checked; card.stale = true; this.load(card); });
    return make("label", {}, box, " trials of the table");
  }

  filtered() {
    clearTimeout(this.later);
    this.later = setTimeout(() => {
      for (const card of this.cards.filter(card => card.filtered)) { card.stale = true; if (card.visible) this.load(card); }
    }, 300);
  }

  fillSelects() {
    for (const {key, selects} of this.cards) for (const [at, select] of Object.values(selects).entries()) {
      const {dimensions} = this.data, known = [...select.options].map(option => option.value);
      if (String(known) === String(dimensions.map(d => d.name))) continue;
      const chosen = select.value && select.touched ? select.value : dimensions[at]?.name;
      select.hidden = dimensions.length <= at; // one dimension has no second axis
      select.replaceChildren(...dimensions.map(d => make("option", {value: d.name, textContent: d.label, selected: d.name === chosen})));
      select.addEventListener("change", () => { select.touched = true; }, {once: true});
    }
  }

  async load(card) {
    if (!card.stale || card.loading) return;
    card.stale = false;
    card.loading = true;
    const query = new URLSearchParams(Object.entries(card.selects).map(([axis, select]) => [axis, select.value]));
    if (card.filtered) query.set("trials", this.table.chosen().slice(0, 50).map(row => row[0]).join(","));
    try {
      card.figure = await Server.json(`${Server.address(this.sweep, "figures", card.key)}?${query}`);
      await this.draw(card);
    } catch (error) {
      card.note.textContent = error.message;
    } finally {
      card.loading = false;
    }
    if (card.stale && card.visible) this.load(card);
  }

  async draw(card) {
    const {plot, note} = card.figure ?? {};
    card.note.textContent = note ?? "";
    card.plot.hidden = !plot?.data;
    card.element.classList.toggle("empty", !plot?.data);
    if (!plot?.data) return;
    const yaxis = {...plot.layout.yaxis, ...(card.log ? {type: "log"} : {})};
    await Figures.draw(card.plot, LOG.includes(card.key) ? {...plot, layout: {...plot.layout, yaxis}} : plot);
    if (!card.clicks) {
      card.clicks = true;
      card.plot.on("plotly_click", ({points}) => {
        const trial = points?.[0]?.customdata;
        if (trial) location.hash = `${encodeURIComponent(this.sweep)}/${trial}`;
      });
    }
  }

  stop() { this.seen.disconnect(); }
}

const parsed = text => { try { return JSON.parse(text); } catch { return text; } };

async function send(sweep, command, text) {
  try {
    const answer = await Server.command(sweep, command);
    say(answer.text ? `${text}: ${answer.text}.` : `Sent: ${text}. The sweep follows when it can.`);
  } catch (error) { say(error.message); }
}

// ---- one trial

async function showTrial(sweep, trial, isNew = true) {
  const address = Server.address(sweep, "trials", trial);
  const [shown, log] = await Promise.all([Server.json(address), Server.json(`${address}/log`)]);
  const isWanted = addressed()[1] === trial;
  if (!isWanted || (!isNew && !dialog.open)) return; // the reader has closed the trial meanwhile
  const wasAtEnd = isAtEnd(dialog.querySelector("pre.log")), top = dialog.scrollTop;
  const close = make("button", {type: "button", textContent: "Close"});
  close.addEventListener("click", () => dialog.close());
  const stop = make("button", {type: "button", textContent: "Stop this trial"});
  stop.addEventListener("click", () => send(sweep, {command: "stop", trial: shown.trial}, `Stop trial ${shown.trial}`));
  const buttons = shown.running && view?.data?.may_command ? [stop, close] : [close];
  const old = isNew ? null : dialog.querySelector(".plot"), plot = old ?? make("div", {className: "plot"});
  const text = make("pre", {className: "log", textContent: log.text});
  dialog.trial = trial;
  dialog.replaceChildren(
    make("div", {className: "bar"}, make("h2", {className: "grow", textContent: `Trial ${shown.trial}`}), ...buttons),
    make("div", {className: "columns"},
      make("section", {}, make("h2", {textContent: "Result"}), rowsTable(shown.facts)),
      make("section", {}, make("h2", {textContent: "Configuration"}), rowsTable(shown.configuration))),
    plot,
    ...(shown.error ? [make("h2", {textContent: "Error"}), make("pre", {textContent: shown.error})] : []),
    make("h2", {textContent: "Log"}), ...(log.note ? [make("p", {className: "note", textContent: log.note})] : []), ...(log.text ? [text] : []),
  );
  if (!dialog.open) dialog.showModal();
  const curve = await Server.json(`${Server.address(sweep, "figures", "curves")}?trials=${encodeURIComponent(shown.trial)}`);
  plot.hidden = !curve.plot.data?.length;
  if (!plot.hidden) await Figures.draw(plot, curve.plot);
  dialog.scrollTop = isNew ? 0 : top;
  if (wasAtEnd || isNew) text.scrollTop = text.scrollHeight;
}

const isAtEnd = log => !log || log.scrollTop + log.clientHeight >= log.scrollHeight - 5;

dialog.addEventListener("close", () => {
  if (location.hash.includes("/")) location.hash = location.hash.split("/")[0];
});

// ---- which view is shown

// The part of the address after `#`, decoded. A part that is not encoded well is taken as it is.
function addressed() {
  if (Server.isLeaving) return [""];
  return location.hash.slice(1).split("/").map(part => { try { return decodeURIComponent(part); } catch { return part; } });
}

async function route() {
  const [sweep, trial] = addressed();
  try {
    if (!view || view.sweep !== sweep) {
      view?.stop();
      const made = sweep ? new SweepView(sweep) : {sweep, refresh: () => showList(() => view === made), stop() {}};
      view = made;
      const control = new AbortController(), stop = made.stop.bind(made);
      made.stop = () => { control.abort(); stop(); };
      let running = false, versions = null, shown = {}, due = 0, later = null;
      const refresh = async () => {
        running = true;
        try {
          const sweeps = await made.refresh();
          shown = Object.fromEntries(sweeps.map(({sweep, version}) => [sweep, version]));
          due = Date.now() + 1000 * Math.max(1, ...sweeps.map(({rest}) => rest));
        } catch (error) { say(error.message); shown = versions ?? {}; }
        running = false;
        check();
      };
      // The server reads a folder again only after a rest. Until then, it returns what the page shows already.
      const check = () => {
        clearTimeout(later);
        const names = Object.keys({...versions, ...shown});
        if (view === made && versions && !running && names.some(name => versions[name] !== shown[name]))
          later = setTimeout(refresh, due - Date.now());
      };
      const changed = found => { versions = found; check(); };
      const status = text => { if (view === made) document.getElementById("live").textContent = text; };
      Server.listen(sweep, changed, status, control.signal);
      await refresh();
    }
    if (trial) await showTrial(sweep, trial);
    else if (dialog.open) dialog.close();
  } catch (error) { say(error.message); }
}

Figures.switchWith(document.querySelector(".theme"));
addEventListener("hashchange", route);
route();
