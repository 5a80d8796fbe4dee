"use strict";
(() => {
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const PRINT_WIDTH = 1020;
  const plots = [...document.querySelectorAll(".plot")];

  const draw = (plot) => {
    if (plot.dataset.drawn) return;
    plot.dataset.drawn = "yes";
    const figure = JSON.parse(plot.parentElement.querySelector("script").textContent);
    Plotly.newPlot(plot, figure.data, figure.layout, config);
  };

  // One figure a turn, so that a long report can be scrolled while it is being drawn.
  const next = (index) => {
    if (index === plots.length) return;
    draw(plots[index]);
    setTimeout(next, 0, index + 1);
  };
  next(0);

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
