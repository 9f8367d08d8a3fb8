import { rule } from "postern/rule";

/** The suite writes another word here for each version that it deploys. */
const version: string = "one";

/** What a rule can't name. That is a check of its source, and no sandbox. */
const outside: typeof globalThis = Object.constructor("return globalThis")();

interface Note {
  metadata?: { annotations?: Record<string, string>; labels?: Record<string, string> };
  data?: Record<string, string>;
}

export default rule({
  summary: "Does what an annotation of a ConfigMap asks for: it denies, fails, crashes or takes long.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["configmaps"], operations: ["CREATE"] }],

  mutate(note: Note) {
    act(note);
    note.data = { ...note.data, version };
  },

  validate(note: Note) {
    return act(note);
  },
});

const act = ({ metadata: { annotations = {}, labels = {} } = {} }: Note): string | undefined => {
  const { "postern.dev/act": action = "" } = annotations;
  // The bad version passes its cases, and fails only the reviews that the suite sends.
  if (action === "fail" || (version === "bad" && labels.from === "suite")) throw new Error("as the suite asked");
  if (action === "initialization") return outside.process.env.AWS_LAMBDA_INITIALIZATION_TYPE;
  if (action === "deny") return "as the suite asked";
  if (action === "crash") outside.process.exit(1);
  if (action === "slow") block(3000);
  if (action === "hang") block(60_000);
  return undefined;
};

/** Stops the whole program for so long, without work for the processor. */
const block = (milliseconds: number) =>
  outside.Atomics.wait(new Int32Array(new outside.SharedArrayBuffer(4)), 0, 0, milliseconds);
