import { once } from "node:events";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { type AddressInfo, connect } from "node:net";
import { join } from "node:path";
import { createServer } from "node:tls";
import { asksCluster } from "#lib/needs.ts";
import type { ValidatePolicy } from "#lib/policy/types.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { AdmissionReview } from "#lib/review.ts";
import { bundleRule } from "../../infra/build/bundle.ts";
import { buildReview, getCasePhase, readCases } from "../../infra/catalogue/cases.ts";
import { type CatalogueRule, readRule } from "../../infra/catalogue/registry.ts";
import { getFunctionsFolder } from "../../infra/catalogue/sources.ts";
import { readOrCreateServerCertificate, type ServerCertificate, type WebhookUrlSigner } from "../../infra/keys/keys.ts";
import { buildDynamoDbVariables, createLedgerTable, startDynamoDb } from "../aws/dynamodb.ts";
import { runtimeClient } from "../aws/tools.ts";
import { start } from "../runtime/runtime-api.ts";
import { createCpuShare, readCpuMilliseconds, wholeCoreMemory } from "./cpu-share.ts";
import { benchCluster, buildBenchEndpointConfig } from "./handlers.ts";
import { type CaseWithReview, findClusterAskingCase, serveRecordedAnswers } from "./inputs/recorded-clusters.ts";
import { buildHttpApiEvent, buildPodReview } from "./inputs/reviews.ts";
import { type BenchResult, computeQuantiles, measureInTurn, measureRatiosInTurn, summarizeRatios } from "./ratios.ts";

/** The times of one cold start, in milliseconds. */
interface StartTimes {
  /** From the start of Node until the function is ready for an event. */
  start: number;
  /** From the event to the answer. */
  answer: number;
  startCpu: number;
  /**
   * The CPU time of start and answer. Lambda gives a function a whole core until it is ready, and then only a fraction
   * of a core, so the CPU time of the answer is divided by this fraction.
   */
  weightedCpu: number;
}

/** The number of rounds that aren't counted. They read the bundles into the disk cache. */
const warmUpRounds = 1;

/** The size of the review of a pod that a measured handler answers, in bytes. */
const podReviewBytes = 5_000;

/** The times of an empty handler and of the measured one, in each round. */
export type ComparedStarts = [empty: StartTimes, measured: StartTimes][];

/** Starts of a function with one handler, compared with starts of an empty handler. */
interface ColdStart {
  /** The rule's name; undefined for a handler that only reads a cluster once. */
  name: string | undefined;
  bytes: number;
  /** Whether the rule reads its cluster before it answers. */
  readsCluster: boolean;
  times: ComparedStarts;
}

/**
 * Measures the starts of all rules except rules that keep a ledger (see `measureLedgerStarts`), and rules that read only
 * outside the cluster.
 */
export const measureColdStarts = async (
  catalogue: CatalogueRule[],
  signer: WebhookUrlSigner,
  folder: string,
  rounds: number,
): Promise<BenchResult[]> => {
  const listVerbs = ({ needs = {} }: CatalogueRule["rule"]) => Object.values(needs).map(({ verb }) => verb);
  const measurable = catalogue.filter(({ rule }) => {
    const verbs = listVerbs(rule);
    return verbs.length === 0 || (asksCluster(rule) && !verbs.includes("ledger"));
  });
  const starts = await compareColdStartsWithEmptyHandler(measurable, signer, folder, rounds);
  return starts.map(({ name, bytes, readsCluster, times }) => {
    const summary = summarizeStarts(times);
    // A handler without Postern, which reads the cluster once.
    if (name === undefined) return { what: "one read by hand", ...summary };
    const measured = measurable.find((listed) => listed.name === name)?.rule;
    const hasScripts = measured !== undefined && listVerbs(measured).includes("cue");
    const hasExpressions = measured?.compileExpressions !== undefined;
    // The limits of the bundles' sizes.
    const limitWithoutExpressions = !readsCluster ? 27 : hasScripts ? 102 : 67;
    return {
      what: readsCluster ? `${name}, asking` : name,
      ...summary,
      limit: hasExpressions ? 1.6 : 1.5, // The largest allowed ratio to the start of an empty handler.
      kilobytes: { bundle: bytes / 1024, limit: hasExpressions ? 111 : limitWithoutExpressions },
    };
  });
};

/**
 * Returns the ratios of the measured starts to the empty handler's: of the whole time, of its two parts, of the start's
 * CPU time, and of the CPU time of both parts. In the last one, the answer's CPU time is divided by the fraction of a
 * core that Lambda gives a function once it has started.
 */
export const summarizeStarts = (times: ComparedStarts): Pick<BenchResult, "ratio" | "parts"> => {
  const compare = (get: (times: StartTimes) => number) => {
    const [milliseconds = Number.NaN] = computeQuantiles(
      times.map(([, measured]) => get(measured)),
      [0.5],
    );
    return { ratio: summarizeRatios(times.map(([empty, measured]) => get(measured) / get(empty))), milliseconds };
  };
  const { ratio } = compare(({ start, answer }) => start + answer);
  return {
    ratio,
    parts: {
      start: compare(({ start }) => start),
      answer: compare(({ answer }) => answer),
      "start's CPU": compare(({ startCpu }) => startCpu),
      "weighted CPU": compare(({ weightedCpu }) => weightedCpu),
    },
  };
};

/**
 * Measures the times from the start of Node to the first answer: for the rules, for an empty handler, and for a handler
 * written by hand that reads a namespace of the cluster. The latter is no rule, so its result has no `name`.
 */
export const compareColdStartsWithEmptyHandler = async (
  catalogue: CatalogueRule[],
  signer: WebhookUrlSigner,
  folder: string,
  rounds: number,
): Promise<ColdStart[]> => {
  const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
  /** A case in which the rule reads the cluster, for each rule that does. */
  const casesThatAsk = new Map<string, CaseWithReview>();
  for (const listed of catalogue) {
    const found = await findClusterAskingCase(listed);
    if (found) casesThatAsk.set(listed.name, found);
  }
  const recorded = [...casesThatAsk].map(
    ([name, { entry }]) => [name, createRecordedCapabilities(entry.needs ?? {})] as const,
  );
  await using opened = new AsyncDisposableStack();
  const served = await serveRecordedAnswers(
    certificate,
    new Map([...recorded, [byHand, createRecordedCapabilities({ objects: [namespaceToRead] })]]),
  );
  opened.defer(served.stop);
  const { url } = served;
  const { ca } = certificate;
  const rules = await Promise.all(
    catalogue.map(async (listed) => {
      const { name } = listed;
      const caseThatAsks = casesThatAsk.get(name);
      const connection = { server: `${url}/${name}`, ca, credentials: { token: "bench" } };
      const connections = caseThatAsks && { [benchCluster]: connection };
      const config = buildBenchEndpointConfig(listed, caseThatAsks?.entry.settings);
      const { bytes } = await bundleRule(listed, config, folder, { connections });
      const phase = caseThatAsks ? getCasePhase(caseThatAsks.entry) : listed.phases[0];
      const path = `/${signer.signSegment(benchCluster, 1)}/${name}/${phase}`;
      const event = buildHttpApiEvent(
        path,
        caseThatAsks ? toBody(caseThatAsks.review) : buildPodReview(podReviewBytes),
      );
      await writeFile(join(folder, name, "event.json"), JSON.stringify(event));
      return { name, bytes, readsCluster: caseThatAsks !== undefined, handlerFolder: join(folder, name) };
    }),
  );
  const empty = await writeHandler(join(folder, "empty"), emptyHandler);
  const readingHandler = await writeHandler(
    join(folder, byHand),
    buildReadingHandler(`${url}/${byHand}/api/v1/namespaces/${namespaceToRead.metadata.name}`, ca),
  );
  const measuredHandlers = [
    ...(casesThatAsk.size > 0 ? [{ ...readingHandler, name: undefined, readsCluster: true }] : []),
    ...rules,
  ];

  const starts: ColdStart[] = [];
  for (const { handlerFolder, ...handler } of measuredHandlers) {
    const event = join(handlerFolder, "event.json");
    const createStart = (place: string) => () => measureStart(place, event, signer.publicKey);
    const [startEmpty, startMeasured] = [createStart(empty.handlerFolder), createStart(handlerFolder)];
    starts.push({ ...handler, times: await measureInTurn(rounds, startEmpty, startMeasured, { warmUpRounds }) });
  }
  return starts;
};

/**
 * Measures starts with a handler and with an empty handler. `code` is the handler's code; it gets a review of a pod.
 */
export const compareCodeWithEmptyHandler = async (
  code: string,
  folder: string,
  rounds: number,
): Promise<ComparedStarts> => {
  const [empty, handler] = [
    await writeHandler(join(folder, "empty"), emptyHandler),
    await writeHandler(join(folder, "code"), code),
  ];
  const createStart = (place: string) => () => measureStart(place, join(place, "event.json"), /* publicKey */ "");
  return measureInTurn(rounds, createStart(empty.handlerFolder), createStart(handler.handlerFolder), { warmUpRounds });
};

/** Measures starts with a rule and with an empty handler. With these settings, the rule must not read the cluster. */
export const compareRuleWithEmptyHandler = async (
  name: string,
  settings: object,
  signer: WebhookUrlSigner,
  folder: string,
  rounds: number,
  { body = buildPodReview(podReviewBytes), variables = {} }: { body?: string; variables?: Record<string, string> } = {},
): Promise<{ bytes: number; times: ComparedStarts }> => {
  const listed = await readRule(join(getFunctionsFolder(), name), name);
  const { bytes } = await bundleRule(listed, buildBenchEndpointConfig(listed, settings), folder);
  const path = `/${signer.signSegment(benchCluster, 1)}/${name}/${listed.phases[0]}`;
  await writeFile(join(folder, name, "event.json"), JSON.stringify(buildHttpApiEvent(path, body)));
  const empty = await writeHandler(join(folder, "empty"), emptyHandler);
  const createStart = (place: string) => () =>
    measureStart(place, join(place, "event.json"), signer.publicKey, { variables });
  const times = await measureInTurn(rounds, createStart(empty.handlerFolder), createStart(join(folder, name)), {
    warmUpRounds,
  });
  return { bytes, times };
};

/** Compares starts of event-rate-limit, which changes a value in DynamoDB Local, with starts of an empty handler. */
export const measureLedgerStarts = async (
  signer: WebhookUrlSigner,
  folder: string,
  rounds: number,
): Promise<BenchResult> => {
  await using running = new AsyncDisposableStack();
  const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
  const dynamoDb = await startDynamoDb();
  running.defer(dynamoDb.stop);
  const tls = running.use(await openTls(certificate, dynamoDb.url));
  const table = "postern-bench";
  await createLedgerTable(dynamoDb.url, table);
  const caFile = join(folder, "ca.pem");
  await writeFile(caFile, certificate.ca);
  const variables = { ...buildDynamoDbVariables(tls.url), POSTERN_LEDGER: table, NODE_EXTRA_CA_CERTS: caFile };

  const name = "event-rate-limit";
  const listed = await readRule(join(getFunctionsFolder(), name), name);
  const [admitted] = (await readCases(listed)) as [Case];
  const body = toBody(buildReview(listed, admitted));
  const settings = { limits: [{ type: "Server", qps: 1000, burst: 1000 }] };
  const { bytes, times } = await compareRuleWithEmptyHandler(name, settings, signer, folder, rounds, {
    body,
    variables,
  });
  return {
    what: `${name}, with its ledger`,
    ...summarizeStarts(times),
    limit: 1.8, // The largest allowed ratio to the start of an empty handler.
    kilobytes: { bundle: bytes / 1024, limit: 67 },
  };
};

/** Opens a server with TLS that passes on all bytes to a URL of this machine without TLS. */
const openTls = async ({ cert, key }: ServerCertificate, url: string) => {
  const server = createServer({ cert, key }, (near) => {
    const far = connect(Number(new URL(url).port), "127.0.0.1");
    near.pipe(far).pipe(near);
    for (const socket of [near, far]) socket.on("error", () => near.destroy());
    near.on("close", () => far.destroy());
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  return { url: `https://127.0.0.1:${port}`, [Symbol.asyncDispose]: async () => void server.close() };
};

const emptyHandler = "exports.handler = async () => ({ statusCode: 200 });\n";
const byHand = "by-hand";
const namespaceToRead = { apiVersion: "v1", kind: "Namespace", metadata: { name: byHand } };

/** Writes a folder with a handler, as a baseline for Postern's handlers, and with the event that it gets. */
const writeHandler = async (handlerFolder: string, code: string) => {
  await mkdir(handlerFolder, { recursive: true });
  await writeFile(join(handlerFolder, "index.cjs"), code);
  await writeFile(
    join(handlerFolder, "event.json"),
    JSON.stringify(buildHttpApiEvent("/", buildPodReview(podReviewBytes))),
  );
  return { bytes: code.length, handlerFolder };
};

/** Builds the code of a minimal handler that sends one HTTPS request to a cluster and answers. */
const buildReadingHandler = (url: string, ca: string) => `const { request } = require("node:https");
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

const toBody = ({ request }: AdmissionReview) =>
  JSON.stringify({ kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", request });

/**
 * Measures one start under Lambda's own runtime client. Once the function has started, it gets the fraction of a core
 * that Lambda gives a function with `memory` MB.
 */
const measureStart = async (
  folder: string,
  event: string,
  publicKey: string,
  { memory = 256, variables = {} }: { memory?: number; variables?: Record<string, string> } = {},
): Promise<StartTimes> => {
  using share = createCpuShare(memory);
  const body = JSON.parse(await readFile(event, "utf8"));
  const environment = { ...buildEnvironment(folder, publicKey, memory), ...variables };
  const begun = performance.now();
  const ready = { pid: 0, time: Number.NaN, cpu: Number.NaN };
  const running = await start(join(runtimeClient, "index.mjs"), environment, {
    ready: (pid) => {
      share?.limit(pid);
      Object.assign(ready, { pid, time: performance.now(), cpu: readCpuMilliseconds(pid) });
    },
  });
  try {
    const { statusCode } = Object(await running.invoke(body));
    const answered = performance.now();
    if (statusCode !== 200) throw new Error(`no answer to measure, but ${statusCode}`);
    // The function had a whole core until it was ready, and then only this fraction of a core. On a fraction of a core,
    // work takes its CPU time divided by the fraction.
    const coreFraction = memory / wholeCoreMemory;
    const answerCpu = readCpuMilliseconds(ready.pid) - ready.cpu;
    return {
      start: ready.time - begun,
      answer: answered - ready.time,
      startCpu: ready.cpu,
      weightedCpu: ready.cpu + answerCpu / coreFraction,
    };
  } finally {
    // The next process starts when this one has ended, so that they don't share a core.
    await running.stop();
  }
};

const buildEnvironment = (folder: string, publicKey: string, memory: number) => ({
  POSTERN_KEYS: publicKey,
  LAMBDA_TASK_ROOT: folder,
  _HANDLER: "index.handler",
  AWS_REGION: "eu-west-1",
  AWS_LAMBDA_FUNCTION_NAME: "bench",
  AWS_LAMBDA_FUNCTION_VERSION: "1",
  AWS_LAMBDA_FUNCTION_MEMORY_SIZE: String(memory),
  AWS_LAMBDA_LOG_GROUP_NAME: "bench",
  AWS_LAMBDA_LOG_STREAM_NAME: "bench",
});

const cueScript = "object: _\nvalidate: {valid: len(object.spec.containers) < 10}";

const policy: ValidatePolicy = {
  apiVersion: "policy.kcloudlabs.io/v1alpha1",
  kind: "ClusterValidatePolicy",
  metadata: { name: "few-containers" },
  spec: { resourceSelectors: [{ apiVersion: "v1", kind: "Pod" }], validateRules: [{ cue: cueScript }] },
};

/**
 * Measures the time from the start of Node to the first answer by a CUE script, as ratios to cue-wasm alone with the
 * same script and object.
 */
export const compareCueColdStartsWithCueWasm = async (
  signer: WebhookUrlSigner,
  folder: string,
  rounds: number,
): Promise<number[]> => {
  const name = "policy-validate";
  const listed = await readRule(join(getFunctionsFolder(), name), name);
  const config = buildBenchEndpointConfig(listed, { policies: [policy], inCluster: false });
  await bundleRule(listed, config, folder, { budgetBytes: Number.POSITIVE_INFINITY });
  const event = buildHttpApiEvent(
    `/${signer.signSegment(benchCluster, 1)}/${name}/validate`,
    buildPodReview(podReviewBytes),
  );
  await writeFile(join(folder, name, "event.json"), JSON.stringify(event));
  const alone = await writeHandler(join(folder, "cue-wasm"), cueWasmHandler);
  const createScriptStart = (place: string) => async () => {
    const { start, answer } = await measureStart(place, join(place, "event.json"), signer.publicKey, {
      memory: 1024,
    });
    return start + answer;
  };
  return measureRatiosInTurn(rounds, createScriptStart(alone.handlerFolder), createScriptStart(join(folder, name)));
};

/** The code of a handler that uses cue-wasm without Postern. */
const cueWasmHandler = `exports.handler = async ({ body }) => {
  const { init } = await import(${JSON.stringify(import.meta.resolve("cue-wasm"))});
  const { toJSON } = await init("full");
  const object = JSON.stringify(JSON.parse(body).request.object);
  const { validate } = JSON.parse(toJSON(${JSON.stringify(cueScript)} + "\\nobject: " + object));
  return { statusCode: validate.valid ? 200 : 500 };
};
`;
