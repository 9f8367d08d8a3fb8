import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Context } from "aws-lambda";
import { createUnconnectedCapabilities } from "#lib/core/capabilities.ts";
import { createLambdaFunction, createLambdaHandler } from "#lib/lambda/handler.ts";
import { readRule } from "../../../infra/catalogue/registry.ts";
import { getFunctionsFolder } from "../../../infra/catalogue/sources.ts";
import { type BenchHandlerProcessInput, buildBenchEndpointConfig } from "../handlers.ts";
import { buildHttpApiEvent, buildPodReview } from "../inputs/reviews.ts";
import { measureMilliseconds, measureRatiosInTurn } from "../ratios.ts";

/**
 * Measures the times of a minimal answer (the floor) and of Postern's handler in turn. Returns for each round the ratio
 * of Postern's time to the floor's time.
 */
const measure = async (assignment: BenchHandlerProcessInput): Promise<number[]> => {
  const { rule: name, phase, writesLogLine, bytes, publicKey, segment, rounds } = assignment;
  const listed = await readRule(join(getFunctionsFolder(), name), name);
  // A handler without a host runs as in Lambda and writes its log line to standard output.
  const parts = { rules: { [name]: listed.rule }, config: buildBenchEndpointConfig(listed) };
  const host = { publicKeys: publicKey, openCapabilities: createUnconnectedCapabilities, writeLogLine: () => {} };
  const handler = writesLogLine ? createLambdaFunction(parts).handler : createLambdaHandler(parts, host);
  const context: Partial<Context> = {
    functionName: name,
    functionVersion: "1",
    getRemainingTimeInMillis: () => 10_000,
  };

  const body = buildPodReview(bytes);
  const event = buildHttpApiEvent(`/${segment}/${name}/${phase}`, body);
  const runFloor = async () => JSON.stringify(buildSmallAnswer(JSON.parse(body).request.uid));
  // The cast is safe: endpoints use no other fields of Lambda's context.
  const runHandler = () => handler(event, context as Context);

  const answer = JSON.stringify(await runHandler());
  if (!answer.startsWith('{"statusCode":200,')) throw new Error(`no answer to measure: ${answer}`);

  // Both functions are called equally often in a round.
  const callsPerRound = await warmUp(runFloor);
  await warmUp(runHandler);
  const time = (act: () => Promise<unknown>) => () => {
    // Garbage of the other measurement is collected before this one.
    global.gc?.({ type: "minor" });
    return measureMilliseconds(act, callsPerRound);
  };
  return measureRatiosInTurn(rounds, time(runFloor), time(runHandler));
};

const buildSmallAnswer = (uid: string) => {
  return { kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", response: { uid, allowed: true } };
};

/** Runs a function for 600 ms, so that V8 compiles it. Returns how many runs fit into one round of 4 ms. */
const warmUp = async (run: () => Promise<unknown>): Promise<number> => {
  const [warmUpTime, roundTime] = [600, 4];
  const start = performance.now();
  let times = 0;
  for (; performance.now() - start < warmUpTime; times++) await run();
  return Math.ceil((times * roundTime) / warmUpTime);
};

writeFileSync(3, JSON.stringify(await measure(JSON.parse(process.argv[2] ?? ""))));
