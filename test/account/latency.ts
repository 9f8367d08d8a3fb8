import { readLogRows } from "./steps.ts";
import type { Suite } from "./suite.ts";

/** The latencies of one kind of reviews, in milliseconds. */
export interface LatencyRow {
  stage: string;
  kind: "cold" | "warm";
  reviews: number;
  /** The latencies that this machine measured, which include the network. */
  here: Percentiles;
  /** The latencies that the functions logged. Those of cold functions include the start. */
  logged: Percentiles;
}

interface Percentiles {
  p50: number;
  p99: number;
}

/** Returns the latencies of the suite's reviews that asked for no special behaviour and that the functions logged. */
export const readLatencies = async (suite: Suite): Promise<LatencyRow[]> => {
  const rows = [suite.http, suite.url].map(async (stage) => {
    const query = 'filter name = "suite-review" | fields uid, Latency, ColdStart';
    const lines = new Map((await readLogRows(stage, query, suite.start)).map((line) => [line.uid, line]));
    const logged = stage.traffic.sent.flatMap(({ uid, action, isAnswered, milliseconds }) => {
      const line = lines.get(uid);
      if (line === undefined || action !== "allow" || !isAnswered) return [];
      return [{ isCold: line.ColdStart !== undefined, here: milliseconds, logged: Number(line.Latency) }];
    });
    return (["cold", "warm"] as const).map((kind): LatencyRow => {
      const times = logged.filter(({ isCold }) => isCold === (kind === "cold"));
      return {
        stage: stage.name,
        kind,
        reviews: times.length,
        here: computePercentiles(times.map(({ here }) => here)),
        logged: computePercentiles(times.map(({ logged }) => logged)),
      };
    });
  });
  return (await Promise.all(rows)).flat();
};

const computePercentiles = (numbers: number[]): Percentiles => {
  const sorted = numbers.toSorted((left, right) => left - right);
  const get = (fraction: number) =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * fraction))] ?? Number.NaN;
  return { p50: get(0.5), p99: get(0.99) };
};
