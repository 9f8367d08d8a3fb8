import { createHash } from "node:crypto";
import type { Context } from "aws-lambda";
import { domainOf, ourIdentity } from "../cluster/credentials.ts";
import { before, sendRequest } from "../cluster/https-request.ts";
import { signed } from "../cluster/signature.ts";
import { computeTimeLeft } from "../deadline.ts";
import type { Evaluate } from "../decide.ts";
import type { EndpointHost } from "../endpoint.ts";
import { getErrorMessage } from "../failure.ts";
import { read } from "../lambda-event.ts";
import { print } from "../print.ts";
import { type Heard, recorder } from "./recorder.ts";
import type { Path } from "./redacted.ts";
import type { RecorderParts } from "./traced-decision.ts";

/** Where reviews are recorded: the key prefix, the fraction of reviews (0 to 1), and the paths whose text is kept. */
export interface Place {
  bucket: string;
  prefix: string;
  share: number;
  keep?: readonly Path[];
}

/** By cluster and rule. */
export type Places = Record<string, Record<string, Place>>;

type Handler = (event: unknown, context: Context) => Promise<unknown>;

/** The longest time that an answer waits for its recording, in milliseconds. */
const longestWait = 500;

/**
 * Returns a handler that records reviews in the bucket of `places`, one object each. It answers after that, because
 * Lambda may freeze the process as soon as it has answered. A failure is only logged. Dry runs are not recorded,
 * because recording is a side effect.
 */
export const stored = (
  places: Places,
  host: EndpointHost,
  parts: RecorderParts,
  make: (host: EndpointHost, evaluate: Evaluate) => Handler,
  put = putObject,
): Handler => {
  let heard: Heard[] = [];
  const { host: around, evaluate } = recorder(host, parts, (one) => void heard.push(one));
  const handler = make(around, evaluate);
  return async (event, context) => {
    // Lambda runs one invocation at a time in a process.
    heard = [];
    const answer = await handler(event, context);
    const kept = heard.flatMap((one, index) => {
      const place = placeOf(places, one);
      return place ? [{ one, place, index }] : [];
    });
    if (kept.length === 0) return answer;
    const deadline = Date.now() + Math.min(longestWait, computeTimeLeft(read(event), context));
    await Promise.all(
      kept.map(({ one, place, index }) => keep(one, place, index, deadline, put).catch((error) => tell(one, error))),
    );
    return answer;
  };
};

const placeOf = (places: Places, { origin: { cluster, rule }, request }: Heard): Place | undefined => {
  const rules = Object.hasOwn(places, cluster) ? places[cluster] : undefined;
  const place = rules && Object.hasOwn(rules, rule) ? rules[rule] : undefined;
  return place && request.dryRun !== true && fraction(request.uid) < place.share ? place : undefined;
};

/** Returns a number from 0 to 1 that depends only on the uid: all members of a group record a review, or none does. */
const fraction = (uid: string): number => createHash("sha256").update(uid).digest().readUInt32BE() / 2 ** 32;

const keep = async (
  one: Heard,
  { bucket, prefix, keep: paths }: Place,
  index: number,
  deadline: number,
  put: typeof putObject,
): Promise<void> => {
  const { cluster, rule, at } = one.origin;
  const { uid } = one.request;
  // The API server's uids have this form; any other text is hashed.
  const name = /^[A-Za-z0-9-]{1,64}$/.test(uid) ? uid : createHash("sha256").update(uid).digest("hex");
  const time = `${at.slice(0, 10)}/${at.slice(11, 23).replaceAll(":", "-")}`;
  const key = `${prefix}${cluster}/${rule}/${time}-${name}${index > 0 ? `-${index}` : ""}.yaml`;
  await put(bucket, key, await before(deadline, one.line(paths)), deadline);
};

const tell = ({ origin: { cluster, rule }, request: { uid } }: Heard, error: unknown) => {
  const why = getErrorMessage(error);
  print(`${JSON.stringify({ Rule: rule, Cluster: cluster, uid, unrecorded: why })}\n`);
};

const putObject = async (bucket: string, key: string, body: string, deadline: number): Promise<void> => {
  const { AWS_REGION: region = "", AWS_ENDPOINT_URL_S3: address } = process.env;
  const { origin, host } = new URL(address ?? `https://s3.${region}.${domainOf(region)}`);
  const path = `/${bucket}/${key.split("/").map(encodeURIComponent).join("/")}`;
  const request = {
    ...{ method: "PUT", host, path, service: "s3", region, body },
    headers: {
      "content-type": "application/yaml",
      "x-amz-content-sha256": createHash("sha256").update(body).digest("hex"),
    },
  };
  const headers = signed(request, ourIdentity(), new Date());
  const { status, body: said } = await sendRequest(`${origin}${path}`, { method: "PUT", headers }, body, deadline);
  if (status === 200) return;
  const [, code] = /<Code>(\w{1,60})<\/Code>/.exec(said) ?? [];
  throw new Error(`s3 answers ${status}${code === undefined ? "" : `, ${code}`}`);
};
