"use strict";
// Draws the figures of a report. The file of the report contains Plotly as compressed text.

(async () => {
  Figures.switchWith(document.querySelector(".theme"));
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), c => c.charCodeAt(0));
  const code = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const script = document.createElement("script");
  script.textContent = code;
  document.head.append(script);
  const seen = new IntersectionObserver(entries => {
    for (const entry of entries.filter(e => e.isIntersecting)) {
      seen.unobserve(entry.target);
      Figures.draw(entry.target, plots[entry.target.dataset.figure]);
    }
  }, {rootMargin: "600px"});
  const plots = JSON.parse(document.getElementById("figures").textContent);
  const elements = [...document.querySelectorAll(".plot")];
  for (const element of elements) seen.observe(element);
  Figures.printAlso(elements.map(element => [element, plots[element.dataset.figure]]));
})();
