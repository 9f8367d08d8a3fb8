import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import type { Floor } from "./floor.ts";
import { writeManifests } from "./manifests.ts";
import type { Used } from "./meter.ts";
import { type Ratio, ratioOf } from "./ratios.ts";

/** What checking many manifests takes, beside the least that it could. */
export interface CheckedMany {
  manifests: number;
  bytes: number;
  /** Seconds of CPU time, as medians: of the whole process, and of the parts of its floor. */
  seconds: { check: number; reading: number; ownReading: number; rules: number };
  /** The most memory that the process had, in bytes. */
  memory: number;
  /** Over reading the files with yaml's own parser, and the time inside the rules; the bar is for it. */
  overParser: Ratio;
  /** The same, with the files read as check reads them. */
  overReader: Ratio;
}

/** The rules of the repository's own postern.yaml judge so many manifests, in processes of their own. */
export const checkRatios = async (folder: string, rounds: number, manifests = 10_000): Promise<CheckedMany> => {
  const place = join(folder, "manifests");
  await mkdir(place);
  try {
    const bytes = await writeManifests(place, manifests);
    const checks: Used[] = [];
    const floors: Floor[] = [];
    for (let round = 0; round < rounds; round++) {
      const measured = [
        async () => checks.push((await run("../main.ts", ["check", "--config", config, place])) as Used),
        async () => floors.push((await run("floor.ts", [config, place])) as Floor),
      ];
      // Who goes first is swapped from round to round.
      for (const measure of round % 2 === 0 ? measured : measured.reverse()) await measure();
    }
    const ratio = (floorOf: (floor: Floor) => number) =>
      ratioOf(checks.map(({ seconds }, round) => seconds / floorOf(floors[round] ?? nothing)));
    const median = (values: number[]) => ratioOf(values).median;
    return {
      manifests,
      bytes,
      seconds: {
        check: median(checks.map(({ seconds }) => seconds)),
        reading: median(floors.map(({ reading }) => reading)),
        ownReading: median(floors.map(({ ownReading }) => ownReading)),
        rules: median(floors.map(({ rules }) => rules)),
      },
      memory: Math.max(...checks.map(({ memory }) => memory)),
      overParser: ratio(({ reading, rules }) => reading + rules),
      overReader: ratio(({ ownReading, rules }) => ownReading + rules),
    };
  } finally {
    await rm(place, { recursive: true });
  }
};

const nothing: Floor = { reading: 0, ownReading: 0, rules: 0 };
const config = fileURLToPath(new URL("../../postern.yaml", import.meta.url));

/** Runs a program beside this file with a meter, and answers what it or the meter says. */
const run = async (file: string, args: string[]): Promise<unknown> => {
  const [meter, program] = ["meter.ts", file].map((name) => new URL(name, import.meta.url));
  const child = spawn(process.execPath, ["--import", String(meter), fileURLToPath(program ?? ""), ...args], {
    stdio: ["ignore", "ignore", "pipe", "pipe"],
  });
  const [, , complaints, said] = child.stdio;
  const [answer, complaint] = await Promise.all([
    text(said as NodeJS.ReadableStream),
    text(complaints as NodeJS.ReadableStream),
    once(child, "close"),
  ]);
  // Some of the manifests are refused.
  if (answer === "" || (child.exitCode ?? 3) > 1) throw new Error(`${file} ended: ${complaint.slice(-2000)}`);
  return JSON.parse(answer);
};
