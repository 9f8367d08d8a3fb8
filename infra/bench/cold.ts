import { spawn } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { bundle } from "../bundle.ts";
import type { Signer } from "../keys.ts";
import type { Listed } from "../registry.ts";
import { cluster, shareOf } from "./handler.ts";
import { eventOf, reviewOfPod } from "./reviews.ts";

/** A rule's bundle, and how the starts of Node with it compare with those that come with an empty handler. */
export interface ColdStarts {
  listed: Listed;
  bytes: number;
  ratios: number[];
}

/** Spawn of Node to the first answered review, over the same with an empty handler; one pair a rule and round. */
export const coldStarts = async (
  catalogue: Listed[],
  signer: Signer,
  folder: string,
  rounds: number,
): Promise<ColdStarts[]> => {
  const empty = join(folder, "empty");
  await mkdir(empty);
  await writeFile(join(empty, "index.cjs"), "exports.handler = async () => ({ statusCode: 200 });\n");
  const body = reviewOfPod(5_000);
  const starts = await Promise.all(
    catalogue.map(async (listed) => {
      const { bytes } = await bundle(listed, shareOf(listed), folder, Number.POSITIVE_INFINITY);
      const path = `/${signer.segment(cluster, 1)}/${listed.name}/${listed.phases[0]}`;
      await writeFile(join(folder, listed.name, "event.json"), JSON.stringify(eventOf(path, body)));
      return { listed, bytes, ratios: [] as number[] };
    }),
  );

  for (let round = -1; round < rounds; round++)
    for (const { listed, ratios } of starts) {
      const event = join(folder, listed.name, "event.json");
      const floor = () => firstAnswer(empty, event, signer.publicKey);
      const whole = () => firstAnswer(join(folder, listed.name), event, signer.publicKey);
      // Who goes first is swapped from round to round; the first round fills the disk's cache.
      const [one, other] = round % 2 === 0 ? [await floor(), await whole()] : [await whole(), await floor()];
      if (round >= 0) ratios.push(round % 2 === 0 ? other / one : one / other);
    }
  return starts;
};

const script = fileURLToPath(new URL("first-answer.cjs", import.meta.url));

/** Milliseconds until a fresh Node has answered. The last byte it prints says whether it did. */
const firstAnswer = (folder: string, event: string, publicKey: string) =>
  new Promise<number>((resolve, reject) => {
    const start = performance.now();
    const child = spawn(process.execPath, [script, join(folder, "index.cjs"), event], {
      env: { POSTERN_KEYS: publicKey },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let answered = Number.NaN;
    let printed = "";
    child.stdout.on("data", (text) => {
      answered = performance.now() - start;
      printed += text;
    });
    child.on("error", reject);
    // The next one starts when this one is gone, so that they don't share a core.
    child.on("close", () =>
      printed.endsWith(".") ? resolve(answered) : reject(new Error(`no answer to measure: ${printed}`)),
    );
  });
