"use strict";
(() => {
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const PRINT_WIDTH = 1020;

  const draw = (plot) => {
    if (plot.dataset.drawn) return;
    plot.dataset.drawn = "yes";
    const figure = JSON.parse(plot.parentElement.querySelector("script").textContent);
    Plotly.newPlot(plot, figure.data, figure.layout, config);
  };

  const plots = [...document.querySelectorAll(".plot")];
  // A long campaign has many figures; each is drawn when it comes near the window.
  const near = new IntersectionObserver(
    (entries) => entries.filter((e) => e.isIntersecting).forEach((e) => draw(e.target)),
    { rootMargin: "800px" },
  );
  plots.forEach((plot) => near.observe(plot));

  addEventListener("beforeprint", () => {
    plots.forEach((plot) => {
      draw(plot);
      Plotly.relayout(plot, { width: PRINT_WIDTH });
    });
  });
  addEventListener("afterprint", () => {
    plots.forEach((plot) => Plotly.relayout(plot, { width: null, autosize: true }));
  });
})();
