"use strict";
// Draws figures in the light or dark colors of the page. The report and the page of `sweeps ui` use this file. It needs Plotly.

const Figures = (() => {
  const drawn = new Map(); // element -> figure
  const WAYS = ["#2f7ed8", "#e69f00", "#11a683", "#cc3d4e", "#9467bd", "#56b4e9", "#b07d2b", "#8a8f98", "#d6336c", "#6b9e3c"];
  const AXIS_WIDTH = 110; // of parallel coordinates, in pixels
  // By default, Plotly shows a button that uploads the figure to its cloud.
  const CONFIG = {responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "", modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"]};
  const PAPER_WIDTH = 680; // of a printed page, in pixels
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let printing = false;

  function isDark() {
    if (printing) return false;
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : dark.matches;
  }

  // The colors are those of a button, which look.css chooses.
  function template() {
    const {color, backgroundColor, borderTopColor} = getComputedStyle(document.querySelector("button"));
    const axis = {gridcolor: borderTopColor, linecolor: borderTopColor, zerolinecolor: borderTopColor, automargin: true};
    const scene = {...axis, backgroundcolor: "rgba(0,0,0,0)"};
    return {layout: {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", colorway: WAYS, font: {color, size: 12},
      xaxis: axis, yaxis: axis, scene: {xaxis: scene, yaxis: scene, zaxis: scene},
      hoverlabel: {bgcolor: backgroundColor, bordercolor: borderTopColor, font: {color}},
      modebar: {bgcolor: "rgba(0,0,0,0)", color: borderTopColor, activecolor: color},
    }};
  }

  // On a phone, dragging scrolls the page, the legend is below the figure, and a long legend is left out.
  function fitted(element, plot) {
    const narrow = element.clientWidth < 480, many = plot.data.length > 12;
    const below = {orientation: "h", y: -0.22, x: 0}, axes = plot.data[0]?.type === "parcoords" ? plot.data[0].dimensions.length : 0;
    const dates = narrow && plot.layout.xaxis?.type === "date" ? {xaxis: {...plot.layout.xaxis, nticks: 4, tickangle: 0}} : {};
    return {
      margin: {t: 16, r: 12, b: 48, l: narrow ? 52 : 64}, height: 340, uirevision: "kept", legend: narrow ? below : {},
      ...plot.layout, ...dates, ...(narrow && many ? {showlegend: false} : {}), ...(narrow ? {dragmode: false} : {}), template: template(),
      ...(axes * AXIS_WIDTH > element.clientWidth ? {width: axes * AXIS_WIDTH} : {}), // the reader scrolls to the other axes
      ...(printing ? {width: PAPER_WIDTH} : {}),
    };
  }

  async function draw(element, plot) {
    drawn.set(element, plot);
    // Plotly changes the objects that it gets, and a figure is drawn again when the colors change.
    await Plotly.react(element, structuredClone(plot.data), structuredClone(fitted(element, plot)), CONFIG);
    for (const gone of drawn.keys()) if (!gone.isConnected) drawn.delete(gone);
  }

  function redraw() {
    for (const [element, plot] of drawn) if (element.isConnected) draw(element, plot);
  }

  // The browser does not wait for a figure before it prints. Plotly draws at once, before its promise is kept.
  function printAlso(plots) {
    let theme;
    addEventListener("beforeprint", () => {
      [printing, theme] = [true, document.documentElement.dataset.theme];
      document.documentElement.dataset.theme = "light";
      for (const [element, plot] of plots) draw(element, plot);
    });
    addEventListener("afterprint", () => {
      printing = false;
      if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
      redraw();
    });
  }

  function remembered(theme) {
    try { // The storage is not available in a sandbox, such as the frame in which MLflow shows a report.
      if (theme) localStorage.setItem("sweeps.theme", theme);
      return localStorage.getItem("sweeps.theme");
    } catch { return theme; }
  }

  function switchWith(button) {
    const show = () => { button.textContent = isDark() ? "Light mode" : "Dark mode"; };
    const saved = remembered();
    if (saved === "dark" || saved === "light") document.documentElement.dataset.theme = saved;
    show();
    button.addEventListener("click", () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      remembered(document.documentElement.dataset.theme);
      show();
      redraw();
    });
    dark.addEventListener("change", () => { show(); redraw(); });
  }

  return {draw, redraw, printAlso, switchWith};
})();
