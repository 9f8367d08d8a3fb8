import { once } from "node:events";
import { join } from "node:path";
import type { Context } from "aws-lambda";
import { endpoint } from "#lib/endpoint.ts";
import { unconnected } from "#lib/needs.ts";
import { catalogueFolder, readRule } from "../catalogue/registry.ts";
import { type Assignment, shareOf } from "./handler.ts";
import { eventOf, reviewOfPod } from "./reviews.ts";

/** The process that measures: floor and handler in turn, in many short rounds. */
const measure = async ({
  rule: name,
  phase,
  journal,
  bytes,
  publicKey,
  segment,
  rounds,
}: Assignment): Promise<number[]> => {
  const listed = await readRule(join(catalogueFolder, name), name);
  // Without a host, the endpoint is Lambda's own, which writes its line to standard output.
  const host = journal ? undefined : { publicKeys: publicKey, world: unconnected, journal: () => {} };
  const handler = endpoint(listed.rule, shareOf(listed), host);
  const context: Partial<Context> = {
    functionName: name,
    functionVersion: "1",
    getRemainingTimeInMillis: () => 10_000,
  };

  const body = reviewOfPod(bytes);
  const event = eventOf(`/${segment}/${name}/${phase}`, body);
  const floor = async () => JSON.stringify(smallAnswer(JSON.parse(body).request.uid));
  // Endpoints look at no more of a context.
  const whole = () => handler(event, context as Context);

  const answer = JSON.stringify(await whole());
  if (!answer.startsWith('{"statusCode":200,')) throw new Error(`no answer to measure: ${answer}`);

  const times = await warmUp(floor);
  await warmUp(whole);
  const ratios: number[] = [];
  for (let round = -Math.ceil(rounds / 5); round < rounds; round++) {
    // Who goes first is swapped from round to round; rounds below zero warm up.
    const [one, other] = round % 2 === 0 ? [floor, whole] : [whole, floor];
    const [first, second] = [await lasting(one, times), await lasting(other, times)];
    if (round >= 0) ratios.push(one === floor ? second / first : first / second);
  }
  return ratios;
};

const smallAnswer = (uid: string) => {
  return { kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", response: { uid, allowed: true } };
};

/** Runs until compilers have done their part. Answers how often it runs in the few milliseconds of a round. */
const warmUp = async (run: () => Promise<unknown>): Promise<number> => {
  const [warm, round] = [600, 4];
  const start = performance.now();
  let times = 0;
  for (; performance.now() - start < warm; times++) await run();
  return Math.ceil((times * round) / warm);
};

/** Starts without the other's garbage, and pays for its own. */
const lasting = async (run: () => Promise<unknown>, times: number): Promise<number> => {
  global.gc?.({ type: "minor" });
  const start = performance.now();
  for (let i = 0; i < times; i++) await run();
  return performance.now() - start;
};

const [assignment] = await once(process, "message");
process.send?.(await measure(assignment));
