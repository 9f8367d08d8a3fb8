import { createServer } from "node:https";
import { readOrCreateServerCertificate } from "../../../infra/keys/keys.ts";
import { printThenAnswerWithCpuTime } from "./processes.ts";

// A minimal webhook in Node. It makes the mutation of default-toleration-seconds with one JSON.parse, one
// JSON.stringify and no checks. Its difference to Postern is the cost of rules, keys, drafts and limits.

interface Toleration {
  key?: string;
  operator?: string;
  effect?: string;
  tolerationSeconds?: number;
}

/** The taints of a node that is lost. */
const lostNodeTaints = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

const buildPatch = (present: Toleration[] | undefined) => {
  const isTolerated = (taint: string) =>
    present?.some(({ key, effect }) => (!key || key === taint) && (!effect || effect === noExecute));
  const missing = lostNodeTaints
    .filter((taint) => !isTolerated(taint))
    .map((key) => ({ key, operator: "Exists", effect: noExecute, tolerationSeconds: 300 }));
  if (missing.length === 0) return undefined;
  return present
    ? missing.map((value) => ({ op: "add", path: "/spec/tolerations/-", value }))
    : [{ op: "add", path: "/spec/tolerations", value: missing }];
};

const noExecute = "NoExecute";

const answerReview = (text: string): string => {
  const { apiVersion, request } = JSON.parse(text);
  const patch = buildPatch(request.object.spec.tolerations);
  const response = {
    uid: request.uid,
    allowed: true,
    ...(patch && { patchType: "JSONPatch", patch: btoa(JSON.stringify(patch)) }),
  };
  return JSON.stringify({ kind: "AdmissionReview", apiVersion, response });
};

const [folder = ""] = process.argv.slice(2);
const { cert, key } = await readOrCreateServerCertificate(folder, "127.0.0.1");
const server = createServer({ cert, key, keepAliveTimeout: 100_000 }, (request, response) => {
  const chunks: Buffer[] = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const body = answerReview(Buffer.concat(chunks).toString());
    response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
    response.end(body);
  });
});
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  // Prints the URL, and then answers each line of standard input with the CPU time until then.
  if (address && typeof address === "object") printThenAnswerWithCpuTime(`https://127.0.0.1:${address.port}/mutate`);
});
