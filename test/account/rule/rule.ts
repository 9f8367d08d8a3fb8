import { rule } from "postern/rule";

/** The version of the rule. The suite changes this text before each deployment of a new version. */
const version: string = "one";

/** The global object. The check of rules forbids to name globalThis, but doesn't see this way to get the object. */
const globalObject: typeof globalThis = Object.constructor("return globalThis")();

/** The ConfigMap of a review, with the fields that the rule uses. */
interface ReviewedConfigMap {
  metadata?: { annotations?: Record<string, string>; labels?: Record<string, string> };
  data?: Record<string, string>;
}

export default rule({
  summary: "Denies, fails, crashes or takes long, as an annotation of a ConfigMap says.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"] }],

  mutate(configMap: ReviewedConfigMap) {
    act(configMap);
    configMap.data = { ...configMap.data, version };
  },

  validate(configMap: ReviewedConfigMap) {
    return act(configMap);
  },
});

const act = ({ metadata: { annotations = {}, labels = {} } = {} }: ReviewedConfigMap): string | undefined => {
  const { "postern.dev/act": action = "" } = annotations;
  // The version "bad" passes the rule's cases. It fails only for the reviews that the suite sends.
  if (action === "fail" || (version === "bad" && labels.from === "suite")) throw new Error("as the suite asked");
  if (action === "initialization") return globalObject.process.env.AWS_LAMBDA_INITIALIZATION_TYPE;
  if (action === "deny") return "as the suite asked";
  if (action === "crash") globalObject.process.exit(1);
  if (action === "slow") block(3000);
  if (action === "hang") block(60_000);
  return undefined;
};

/** Blocks the whole program for `milliseconds`, without using the processor. */
const block = (milliseconds: number) =>
  globalObject.Atomics.wait(new Int32Array(new globalObject.SharedArrayBuffer(4)), 0, 0, milliseconds);
