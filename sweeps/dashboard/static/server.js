"use strict";
// Requests to the server, with the token if the server needs one.

const Server = (() => {
  const dialog = document.getElementById("token");
  const stored = () => sessionStorage.getItem("sweeps.token");
  const given = new URLSearchParams(location.search);
  if (given.has("token")) { // `sweeps ui` prints this address; the token must not stay in it
    sessionStorage.setItem("sweeps.token", given.get("token"));
    given.delete("token");
    history.replaceState(null, "", `${location.pathname}${given.size ? `?${given}` : ""}${location.hash}`);
  }

  function askForToken() {
    return new Promise(resolve => {
      dialog.addEventListener("close", () => {
        sessionStorage.setItem("sweeps.token", dialog.querySelector("input").value);
        resolve();
      }, {once: true});
      if (!dialog.open) dialog.showModal();
    });
  }

  let asking = null;
  async function request(path, options = {}) {
    const headers = {...options.headers, ...(stored() ? {authorization: `Bearer ${stored()}`} : {})};
    const answer = await fetch(`api/${path}`, {...options, headers});
    if (answer.status === 401) {
      asking ??= askForToken().finally(() => { asking = null; });
      await asking;
      return request(path, options);
    }
    if (!answer.ok) throw Object.assign(new Error(await reason(answer)), {status: answer.status});
    return answer;
  }

  async function reason(answer) {
    try {
      const {detail} = await answer.json();
      return typeof detail === "string" ? detail : detail.map(one => one.rule).join("; ");
    } catch { return `the server answered ${answer.status}`; }
  }

  const json = async (path, options) => (await request(path, options)).json();

  // Returns a part of the page, which the server has rendered.
  async function fragment(path) {
    const template = document.createElement("template");
    template.innerHTML = await (await request(path)).text();
    return template.content;
  }

  const address = (sweep, ...rest) => ["sweeps", sweep, ...rest].map(encodeURIComponent).join("/");

  // Another site cannot send the header X-Sweeps.
  const command = (sweep, body) => json(address(sweep, "commands"), {
    method: "POST", body: JSON.stringify(body), headers: {"content-type": "application/json", "x-sweeps": "1"},
  });

  // Calls `changed` after each event, until `signal` is aborted. EventSource cannot send a token, so the stream is read here.
  async function listen(sweep, changed, status, signal) {
    while (!signal.aborted) {
      try {
        const answer = await request(sweep ? `events?sweep=${encodeURIComponent(sweep)}` : "events", {signal});
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        status("live");
        for (let read = await reader.read(), text = ""; !read.done; read = await reader.read()) {
          text += read.value;
          const events = text.split("\n\n");
          text = events.pop();
          if (events.some(event => event.startsWith("event: change"))) changed();
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 404) return status(error.message);
      }
      status("disconnected; trying again");
      await new Promise(resolve => setTimeout(resolve, 2000));
    }
  }

  return {json, fragment, address, command, listen};
})();
