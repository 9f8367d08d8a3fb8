import { spawn } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { recorded } from "#lib/recorded-answers.ts";
import type { Review } from "#lib/review.ts";
import { bundle } from "../build/bundle.ts";
import { phaseOf } from "../catalogue/cases.ts";
import type { Listed } from "../catalogue/registry.ts";
import { openCertificate, type Signer } from "../keys/keys.ts";
import { cluster, shareOf } from "./handler.ts";
import { eventOf, reviewOfPod } from "./reviews.ts";
import { type Asking, firstThatAsks, serveWritten } from "./written.ts";

/** How the starts of Node with something compare with those that come with an empty handler. */
export interface ColdStarts {
  /** A rule; undefined for one read of a cluster by hand, and nothing else. */
  name: string | undefined;
  bytes: number;
  /** Whether it has to ask its cluster before it answers. */
  asks: boolean;
  ratios: number[];
}

/** Spawn of Node to the first answered review, over the same with an empty handler; one pair each and round. */
export const coldStarts = async (
  catalogue: Listed[],
  signer: Signer,
  folder: string,
  rounds: number,
): Promise<ColdStarts[]> => {
  const certificate = await openCertificate(folder, "127.0.0.1");
  const asking = new Map<string, Asking>();
  for (const listed of catalogue) {
    const found = await firstThatAsks(listed);
    if (found) asking.set(listed.name, found);
  }
  const worlds = [...asking].map(([name, { entry }]) => [name, recorded(entry.needs ?? {})] as const);
  const written = await serveWritten(certificate, new Map([...worlds, [byHand, recorded({ objects: [nothing] })]]));
  try {
    const { url } = written;
    const { ca } = certificate;
    const whole = await Promise.all(
      catalogue.map(async (listed) => {
        const { name } = listed;
        const asked = asking.get(name);
        const connection = { server: `${url}/${name}`, ca, credentials: { token: "bench" } };
        const connections = asked && { [cluster]: connection };
        const share = shareOf(listed, asked?.entry.settings);
        const { bytes } = await bundle(listed, share, folder, Number.POSITIVE_INFINITY, connections);
        const path = `/${signer.segment(cluster, 1)}/${name}/${asked ? phaseOf(asked.entry) : listed.phases[0]}`;
        const event = eventOf(path, asked ? bodyOf(asked.review) : reviewOfPod(5_000));
        await writeFile(join(folder, name, "event.json"), JSON.stringify(event));
        return { name, bytes, asks: asked !== undefined, folder: join(folder, name), ratios: [] as number[] };
      }),
    );
    const empty = await handler(join(folder, "empty"), "exports.handler = async () => ({ statusCode: 200 });\n");
    const hand = await handler(join(folder, byHand), reading(`${url}/${byHand}/api/v1/namespaces/${byHand}`, ca));
    const starts = [...(asking.size > 0 ? [{ ...hand, name: undefined, asks: true }] : []), ...whole];

    for (let round = -1; round < rounds; round++)
      for (const { folder, ratios } of starts) {
        const event = join(folder, "event.json");
        const floor = () => firstAnswer(empty.folder, event, signer.publicKey);
        const whole = () => firstAnswer(folder, event, signer.publicKey);
        // Who goes first is swapped from round to round; the first round fills the disk's cache.
        const [one, other] = round % 2 === 0 ? [await floor(), await whole()] : [await whole(), await floor()];
        if (round >= 0) ratios.push(round % 2 === 0 ? other / one : one / other);
      }
    return starts;
  } finally {
    await written.stop();
  }
};

const byHand = "by-hand";
const nothing = { apiVersion: "v1", kind: "Namespace", metadata: { name: byHand } };

/** Something to compare with, beside an event. */
export const handler = async (folder: string, code: string) => {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, "index.cjs"), code);
  await writeFile(join(folder, "event.json"), JSON.stringify(eventOf("/", reviewOfPod(5_000))));
  return { bytes: code.length, folder, ratios: [] as number[] };
};

/** What the first read of a cluster takes whoever makes it: Node's HTTPS, a connection, an answer. */
const reading = (url: string, ca: string) => `const { request } = require("node:https");
exports.handler = () =>
  new Promise((resolve, reject) => {
    const sent = request(${JSON.stringify(url)}, { ca: ${JSON.stringify(ca)} }, async (response) => {
      let text = "";
      for await (const chunk of response) text += chunk;
      resolve({ statusCode: JSON.parse(text).kind === "Namespace" ? 200 : 500 });
    });
    sent.on("error", reject).end();
  });
`;

const bodyOf = ({ request }: Review) =>
  JSON.stringify({ kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", request });

const script = fileURLToPath(new URL("first-answer.cjs", import.meta.url));

/** Milliseconds until a fresh Node has answered. The last byte it prints says whether it did. */
export const firstAnswer = (folder: string, event: string, publicKey: string) =>
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
