import { readFile } from "node:fs/promises";
import { setFlagsFromString } from "node:v8";
import { Worker } from "node:worker_threads";
import { exactJson } from "#lib/exact-json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { parseMinor } from "#lib/since.ts";
import { Complaint } from "../cli/complaint.ts";
import { moduleExtension } from "../cli/roots.ts";
import type { ServerOptions } from "./instance.ts";
import { unpackModule } from "./module-files.ts";
import { formatHeader, type KubernetesAnswer, type KubernetesRequest, type KubernetesStatus } from "./requests.ts";
import { createAnswerPatterns, toRequestPattern } from "./similar-requests.ts";
import { webAssembly } from "./webassembly.ts";
import type { KubernetesWorkerData, MessageFromKubernetesWorker, MessageToKubernetesWorker } from "./worker.ts";

export interface KubernetesOptions extends ServerOptions {
  /** The folder with the compressed module, which is API server code as WebAssembly. */
  packed: string;
  /** The folder to unpack it to; the user's cache if it is left out. */
  cache?: string;
  /** The time that one object may take, in milliseconds. */
  timeout?: number;
}

/** Kubernetes' own handlers. */
export interface Kubernetes {
  /** The version of Kubernetes, such as 1.37.2. */
  version: string;
  /** Answers a request as an API server does. Requests are answered one after another. */
  handle(request: KubernetesRequest): Promise<KubernetesAnswer>;
  stop(): Promise<void>;
}

interface OpenRequest {
  request: KubernetesRequest;
  resolve(answer: KubernetesAnswer): void;
}

/** What the module writes; infra/kubernetes/module/requests.go has the same type. */
interface WrittenAnswer {
  code?: number;
  warnings?: string[];
  object?: KubernetesObject;
  status?: KubernetesStatus;
  notServed?: true;
  crash?: string;
}

/** Longer than any object of 3 MB takes on a slow machine. */
export const defaultTimeout = 30_000;
const crash = "Kubernetes' handlers failed at this object";

const toJson = (object: KubernetesRequest["object"]): string | Uint8Array =>
  typeof object === "string" || object instanceof Uint8Array ? object : exactJson.stringify(object);

/** Starts the module. */
export const createKubernetes = async ({
  packed,
  cache,
  timeout = defaultTimeout,
  minor,
  featureGates,
}: KubernetesOptions): Promise<Kubernetes> => {
  const paths = await unpackModule(packed, cache);
  // A newer minor than the module's isn't known here.
  const isOlder = minor !== undefined && parseMinor(minor) < parseMinor(paths.kubernetes.replace(/\.\d+$/, ""));
  const options: ServerOptions = { ...(isOlder && { minor }), ...(featureGates && { featureGates }) };
  // Validating all functions takes longer than compiling those that are called; the checksum is that of the build.
  setFlagsFromString("--wasm-lazy-validation");
  // Optimizing a function needs more time than it saves, unless it is called for thousands of objects.
  setFlagsFromString("--wasm-tiering-budget=1000000000");
  // The engine would let its space for new objects grow by 80 MB, which saves a check of 3,000 files no time.
  setFlagsFromString("--semi-space-growth-factor=1");
  const code = await readFile(paths.code);
  const module = await webAssembly.compile(code);
  // Frees 80 MB at once: the engine has its own copy.
  (code.buffer as ArrayBuffer).transfer(0);
  const workerData: KubernetesWorkerData = { module, imageFile: paths.memory, options };

  /** The requests that the worker has, in their order, with those that no worker has yet. */
  let open: OpenRequest[] = [];
  /** The definitions that each new worker gets, by their names. */
  const definitions = new Map<string | undefined, KubernetesRequest>();
  let worker: Worker | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isStopped = false;

  const send = ({ request }: OpenRequest) =>
    worker?.postMessage([
      formatHeader(request),
      toJson(request.object),
      request.oldObject,
    ] satisfies MessageToKubernetesWorker);
  const startTimer = () => {
    clearTimeout(timer);
    if (open.length > 0)
      timer = setTimeout(
        () => replaceWorker(`Kubernetes' handlers took longer than ${timeout / 1000} s for this object`),
        timeout,
      );
  };
  const start = () =>
    new Promise<void>((resolve, reject) => {
      const own = new Worker(new URL(`./worker${moduleExtension}`, import.meta.url), { workerData, execArgv: [] });
      let isReady = false;
      own.on("message", (message: MessageFromKubernetesWorker) => {
        if (own !== worker) return;
        if ("problem" in message)
          return own
            .terminate()
            .then(() => reject(new Complaint(`Kubernetes ${paths.kubernetes}: ${message.problem}`)));
        if ("answer" in message) return receive(exactJson.parse(message.answer) as WrittenAnswer);
        isReady = true;
        if (open.length === 0) own.unref();
        startTimer();
        resolve();
      });
      own.on("error", (error) => {
        if (!isReady) reject(error);
      });
      // When a worker has ended, all of its answers have arrived; at its error, some may be on their way.
      own.on("exit", () => {
        if (isReady && own === worker && !isStopped) replaceWorker(crash);
      });
      worker = own;
    });
  const receive = ({ warnings = [], crash: reason, code: _code, ...written }: WrittenAnswer) => {
    if (reason !== undefined) return replaceWorker(crash);
    const answered = open.shift();
    if (answered === undefined) throw new Error("the module gave an answer to no request");
    const { request, resolve } = answered;
    if (request.verb === "define" && written.object !== undefined) definitions.set(request.name, request);
    if (open.length === 0) worker?.unref();
    startTimer();
    resolve({ ...written, warnings });
  };
  /** Answers the first open request with a reason, and lets a new worker answer the others. */
  const replaceWorker = (reason: string) => {
    clearTimeout(timer);
    const [first, ...others] = open;
    const earlier = [...definitions.values()].map((request) => ({ request, resolve: () => {} }));
    open = [...earlier, ...others];
    worker?.terminate();
    first?.resolve({ undecided: reason, warnings: [] });
    if (isStopped) return;
    start().catch(() => {
      for (const { resolve } of open) resolve({ undecided: crash, warnings: [] });
      open = [];
    });
    for (const one of open) send(one);
  };

  const ask = (request: KubernetesRequest) =>
    new Promise<KubernetesAnswer>((resolve) => {
      const one = { request, resolve };
      open.push(one);
      worker?.ref();
      send(one);
      if (open.length === 1) startTimer();
    });
  const answers = createAnswerPatterns();

  await start();
  return {
    version: paths.kubernetes,
    handle: async (request) => {
      const pattern = toRequestPattern(request);
      const known = pattern && answers.find(pattern);
      if (known) return known;
      const answer = await ask(request);
      if (pattern) answers.put(pattern, answer);
      return answer;
    },
    stop: async () => {
      isStopped = true;
      clearTimeout(timer);
      await worker?.terminate();
    },
  };
};
