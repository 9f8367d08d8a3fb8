import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { createEndpoint } from "#lib/core/endpoint.ts";
import type { OpenCapabilities } from "#lib/needs.ts";
import type { AdmissionRequest } from "#lib/review.ts";
import { readRule } from "../../infra/catalogue/registry.ts";
import { getFunctionsFolder } from "../../infra/catalogue/sources.ts";
import { createRandom } from "../../infra/testing/random.ts";
import { benchCluster, buildBenchEndpointConfig } from "../bench/handlers.ts";
import { createHttpRequestBuilder } from "../bench/inputs/reviews.ts";
import type { AnswerCounts } from "../bench/ledger.ts";
import { computeQuantiles } from "../bench/ratios.ts";
import { createTestSigner } from "../parity/test-key.ts";

/** Sends a review to a function in its own environment, which answers one review at a time. */
export type SendReview = (request: Omit<AdmissionRequest, "uid">) => Promise<keyof AnswerCounts>;

/** Reads a rule of the catalogue. Returns a function that opens, in this process, a stand-in for a Lambda function. */
export const openRuleForRates = async (name: string) => {
  const { publicKey, segment } = createTestSigner(1);
  const listed = await readRule(join(getFunctionsFolder(), name), name);
  return (settings: object, openCapabilities: OpenCapabilities): SendReview => {
    const config = buildBenchEndpointConfig(listed, settings);
    const host = { publicKeys: publicKey, openCapabilities, writeLogLine: () => {} };
    const { answerRequest } = createEndpoint(listed.rule, config, host);
    return async (reviewed) => {
      const review = {
        apiVersion: "admission.k8s.io/v1",
        kind: "AdmissionReview",
        request: { uid: randomUUID(), ...reviewed },
      };
      const request = createHttpRequestBuilder(`/${segment(benchCluster)}/${name}/validate`, JSON.stringify(review));
      const { code, body } = await answerRequest(request());
      if (code !== 200) return "failed";
      return JSON.parse(body).response.allowed ? "admitted" : "refused";
    };
  };
};

/**
 * Sends on average `rate` reviews a second at random times, for `seconds`. As in Lambda, each review goes to an idle
 * function; if no function is idle, the review waits. Returns the numbers of answers, and quantiles of their times.
 */
export const sendAtRate = async (
  rate: number,
  seconds: number,
  functions: SendReview[],
  buildRequest: () => Omit<AdmissionRequest, "uid">,
) => {
  const random = createRandom(1);
  const idle = [...functions];
  /** The times at which the waiting reviews were sent. */
  const waiting: number[] = [];
  const answers: AnswerCounts = { admitted: 0, refused: 0, failed: 0 };
  const times: number[] = [];
  const work = async (send: SendReview) => {
    for (let sendTime = waiting.shift(); sendTime !== undefined; sendTime = waiting.shift()) {
      answers[await send(buildRequest())]++;
      times.push(performance.now() - sendTime);
    }
    // `idle` is a stack: the function that answered last gets the next review.
    idle.push(send);
  };
  const running: Promise<void>[] = [];
  const start = performance.now();
  const reviewCount = rate * seconds;
  // Each millisecond, the inner loop sends the reviews that are due: `dueTime` is the time of the next one.
  for (let sent = 0, dueTime = 0; sent < reviewCount; await wait(1))
    for (; dueTime <= performance.now() - start && sent < reviewCount; sent++) {
      // The intervals of a Poisson process have an exponential distribution.
      dueTime -= (Math.log(1 - random.draw()) * 1000) / rate;
      waiting.push(performance.now());
      const send = idle.pop();
      if (send) running.push(work(send));
    }
  await Promise.all(running);
  const [p50 = 0, p99 = 0] = computeQuantiles(times, [0.5, 0.99]);
  return { ...answers, p50, p99, seconds: (performance.now() - start) / 1000 };
};
