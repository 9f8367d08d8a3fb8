import uPlot from "uplot";
import type { ReviewRow } from "../messages.ts";
import { create, formatTimeOfDay } from "./elements.ts";

/** Counts reviews. Also returns the 50th, 95th and 99th percentile of their milliseconds; null without reviews. */
export const countReviews = (rows: readonly ReviewRow[]) => {
  const times = rows.map(({ milliseconds }) => milliseconds).sort((left, right) => left - right);
  return {
    calls: rows.length,
    // In the modes warn and audit, a rule doesn't deny a request, and the verdict is "would be denied".
    denials: rows.filter(({ verdict }) => verdict === "denied" || verdict === "would be denied").length,
    percentiles: [0.5, 0.95, 0.99].map((fraction) => times[Math.ceil(fraction * times.length) - 1] ?? null),
  };
};

/** The lengths of a span of time, in seconds. */
const spanLengths = [1, 2, 5, 10, 30, 60, 300, 900, 3600];
const maxSpans = 60;

/** Divides the time of the reviews into spans of equal length, at most `maxSpans`, and counts the reviews of each. */
const splitByTime = (rows: readonly ReviewRow[]) => {
  const [firstSecond = 0, lastSecond = 0] = [rows[0], rows.at(-1)].map((row) => (row?.at ?? 0) / 1000);
  const spanSeconds =
    spanLengths.find((seconds) => (lastSecond - firstSecond) / seconds < maxSpans) ??
    (lastSecond - firstSecond) / maxSpans;
  const start = Math.floor(firstSecond / spanSeconds);
  const spans = Array.from({ length: Math.floor(lastSecond / spanSeconds) - start + 1 }, (): ReviewRow[] => []);
  for (const row of rows) spans[Math.floor(row.at / 1000 / spanSeconds) - start]?.push(row);
  const times = spans.map((_, index) => (start + index) * spanSeconds);
  return { spanSeconds, times, spans: spans.map(countReviews) };
};

/** Returns the value of a CSS variable with a colour, in the format that a canvas accepts. */
const readColour = (name: string): string => {
  const probe = document.body.appendChild(create("span"));
  probe.style.color = `var(${name})`;
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
};

/** The plots on the page. A plot listens to events of the window until it is destroyed. */
const drawn: uPlot[] = [];

const formatTimes = (_: uPlot, times: number[]) => times.map((time) => formatTimeOfDay(time * 1000));

type Series = [name: string, colour: string, values: (number | null)[]];

/** Draws two plots of a rule: one with its calls and denials, one with the percentiles of its milliseconds. */
export const createPlots = (rows: readonly ReviewRow[]): Node => {
  const { spanSeconds, times, spans } = splitByTime(rows);
  for (const plot of drawn.splice(0)) plot.destroy();
  const draw = (title: string, allSeries: Series[]) => {
    const [grid, stroke] = [{ stroke: readColour("--line"), width: 1 }, readColour("--ink")];
    const axis = { stroke, grid, ticks: grid };
    const maximum = Math.max(...allSeries.flatMap(([, , values]) => values.map(Number)));
    const figure = create("figure", { role: "img", "aria-label": `${title}, at most ${maximum}` });
    const options: uPlot.Options = {
      width: Math.min(document.body.clientWidth - 32, 600),
      height: 180,
      // The last label of the axis is centred on the right edge of the plot: half of it is outside.
      padding: [null, 32, null, null],
      axes: [
        { ...axis, space: 80, values: formatTimes },
        { ...axis, size: 60 },
      ],
      cursor: { show: false },
      legend: { live: false },
      scales: {
        x: { range: [(times[0] ?? 0) - spanSeconds, (times.at(-1) ?? 0) + spanSeconds] },
        y: { range: [0, Math.max(maximum * 1.1, 1)] },
      },
      series: [
        {},
        ...allSeries.map(([label, name]) => ({ label, stroke: readColour(name), width: 2, spanGaps: true })),
      ],
    };
    drawn.push(new uPlot(options, [times, ...allSeries.map(([, , values]) => values)], figure));
    return create("div", create("h3", title), figure);
  };
  const colours = ["--green", "--amber", "--red"];
  const percentiles = ["p50", "p95", "p99"].map((name, index): Series => {
    return [name, colours[index] ?? "", spans.map(({ percentiles }) => percentiles[index] ?? null)];
  });
  const counts: Series[] = [
    ["calls", "--blue", spans.map(({ calls }) => calls)],
    ["denials", "--red", spans.map(({ denials }) => denials)],
  ];
  return create("div.plots", draw(`Calls and denials in ${spanSeconds} s`, counts), draw("Milliseconds", percentiles));
};
