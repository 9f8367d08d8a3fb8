import { randomUUID } from "node:crypto";
import { Agent } from "node:https";
import { setTimeout as wait } from "node:timers/promises";
import { requireUnansweredError, sendRequest } from "#lib/cluster/https-request.ts";
import { parseJson } from "#lib/json.ts";
import type { Phase } from "#lib/rule.ts";
import { Complaint } from "../../infra/cli/complaint.ts";
import type { ImitatedCluster } from "./api-server.ts";

// Sends reviews to the URLs in a cluster's webhook entries, as an API server would, and records the answers.

/** The behaviour of the suite's rule: an annotation of the reviewed object states it. */
export type Action = "allow" | "deny" | "fail" | "crash" | "slow" | "hang";
export const suiteRule = "do-as-annotated";
export const ordinaryRule = "always-pull-images";

/** A review that the suite sent, and its answer. */
export interface SentReview {
  uid: string;
  rule: string;
  phase: Phase;
  action: Action;
  /** The time when it was sent, in milliseconds since 1970. */
  at: number;
  milliseconds: number;
  /** The HTTP status; 0 without an answer. */
  status: number;
  /** True if the answer is a review for this request. */
  isAnswered: boolean;
  allowed?: boolean;
  /** The version of the suite's rule that mutated the object. */
  version?: string | undefined;
  /** The message of the denial or of the error; without a message, the beginning of the answer. */
  sentence: string;
}

export interface ReviewOptions {
  rule?: string;
  phase?: Phase;
  action?: Action;
  /** The length of a text in the object, in bytes. */
  bytes?: number;
  /** Changes the URL, for instance its key. */
  changeUrl?: (url: string) => string;
}

export interface Traffic {
  sent: SentReview[];
  send(options?: ReviewOptions): Promise<SentReview>;
  /** Sends reviews of all kinds, one in so many milliseconds, until the returned function is called. */
  sendEvery(milliseconds: number): () => Promise<SentReview[]>;
  close(): void;
}

/** The number of reviews that all stages together may still send. It limits the costs. */
export interface ReviewBudget {
  left: number;
}

const timeoutSeconds = 20;

/** Returns functions that send reviews to the URLs in a cluster's webhook entries, as long as the budget lasts. */
export const createTraffic = (cluster: ImitatedCluster, budget: ReviewBudget): Traffic => {
  const agent = new Agent({ keepAlive: true, maxSockets: 32 });
  const sent: SentReview[] = [];
  const findUrl = (rule: string, phase: Phase): string => {
    const entry = cluster.listEntries(phase).find(({ name }) => name === `${rule}.postern.dev`);
    if (entry === undefined) throw new Complaint(`the cluster has no ${phase} entry of ${rule}`, 1);
    return entry.clientConfig.url;
  };

  const send = async ({
    rule = suiteRule,
    phase = "validate",
    action = "allow",
    bytes = 0,
    changeUrl = (url) => url,
  }: ReviewOptions = {}): Promise<SentReview> => {
    if (budget.left === 0) throw new Complaint("the suite has sent as many reviews as its budget allows", 1);
    budget.left -= 1;
    const review = buildReview(rule, action, bytes);
    const { uid } = review.request;
    const url = `${changeUrl(findUrl(rule, phase))}?timeout=${timeoutSeconds}s`;
    const headers = { "content-type": "application/json", accept: "application/json", "user-agent": "postern-suite" };
    const [at, start] = [Date.now(), performance.now()];
    const answer = await sendRequest(
      url,
      { method: "POST", headers, agent },
      JSON.stringify(review),
      at + timeoutSeconds * 1000,
    ).catch(requireUnansweredError);
    const milliseconds = performance.now() - start;
    const record: SentReview = { uid, rule, phase, action, at, milliseconds, ...readAnswer(answer, uid) };
    sent.push(record);
    return record;
  };

  return {
    sent,
    send,
    sendEvery: (milliseconds) => {
      const reviews: SentReview[] = [];
      let isOver = false;
      const sendNext = async (index: number) => {
        const rule = index % 4 < 2 ? suiteRule : ordinaryRule;
        reviews.push(await send({ rule, phase: index % 2 === 0 ? "mutate" : "validate" }));
      };
      const run = async () => {
        for (let index = 0; !isOver; index++) await Promise.all([sendNext(index), wait(milliseconds)]);
      };
      const running = run();
      running.catch(() => {});
      return async () => {
        isOver = true;
        await running;
        return reviews;
      };
    },
    close: () => agent.destroy(),
  };
};

type Answer = Awaited<ReturnType<typeof sendRequest>> | Error;

const readAnswer = (answer: Answer, uid: string) => {
  if (!("status" in answer)) return { status: 0, isAnswered: false, sentence: answer.message };
  const { status, body } = answer;
  const { response, message } = Object(parseJson(body));
  const { uid: answered, allowed, status: refusal, patch } = Object(response);
  const isAnswered = status === 200 && answered === uid && typeof allowed === "boolean";
  const sentence = String(Object(refusal).message ?? message ?? body.slice(0, 200));
  return { status, isAnswered, sentence, ...(isAnswered && { allowed, version: readVersion(patch) }) };
};

/** Returns the version that the patch of the suite's rule adds to an object. */
const readVersion = (patch: unknown): string | undefined => {
  const operations = parseJson(Buffer.from(typeof patch === "string" ? patch : "", "base64").toString());
  // The rule adds data.version. If the object has no data, the patch adds the whole map.
  for (const { value } of Array.isArray(operations) ? operations : []) {
    const version: unknown = typeof value === "string" ? value : Object(value).version;
    if (typeof version === "string") return version;
  }
  return undefined;
};

/** Builds a review of a ConfigMap for the suite's rule, or of a Pod for the other rule. */
const buildReview = (rule: string, action: Action, bytes: number) => {
  const isOfSuiteRule = rule === suiteRule;
  const kind = { group: "", version: "v1", kind: isOfSuiteRule ? "ConfigMap" : "Pod" };
  const resource = { group: "", version: "v1", resource: isOfSuiteRule ? "configmaps" : "pods" };
  const metadata = {
    name: "suite-review",
    namespace: "default",
    labels: { from: "suite" },
    ...(action !== "allow" && { annotations: { "postern.dev/act": action } }),
  };
  const content = isOfSuiteRule
    ? { data: { text: "x".repeat(bytes) } }
    : { spec: { containers: [{ name: "web", image: "registry.example/web:1", imagePullPolicy: "Always" }] } };
  return {
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    request: {
      uid: randomUUID(),
      kind,
      resource,
      requestKind: kind,
      requestResource: resource,
      name: metadata.name,
      namespace: metadata.namespace,
      operation: "CREATE",
      userInfo: { username: "suite", groups: [] },
      object: { apiVersion: "v1", kind: kind.kind, metadata, ...content },
      oldObject: null,
      dryRun: false,
      options: { apiVersion: "meta.k8s.io/v1", kind: "CreateOptions" },
    },
  };
};
