import { interceptCalls, isWrite } from "../core/capabilities.ts";
import { toMap } from "../json.ts";
import { type Capabilities, type HttpsRequest, type HttpsResponse, parseAnswer } from "../needs.ts";
import { noteAnswers, toRecordedRequest } from "./notes.ts";
import type { FieldReadTracker } from "./reads.ts";
import { createRecordedCapabilities, type RecordedCapabilityAnswers } from "./recorded-answers.ts";
import { hasPlaceholder, type RedactValue } from "./redaction.ts";

/**
 * Repeats the answers that a rule got in a review. To record the review, the rule is evaluated twice more with them:
 * first to note which texts it reads, then with a redacted object and redacted answers.
 */
export interface AnswerRepeater {
  /**
   * Returns capabilities for the first evaluation. They note what the rule reads, and store each answer for the second.
   */
  openWatched(reads: FieldReadTracker): Capabilities;
  /**
   * Returns capabilities for the second evaluation, with the stored answers, redacted. The rule's questions may contain
   * redacted text, so answers are found by the order of the questions, and the redacted questions are noted.
   */
  openRedacted(redact: RedactValue): RedactedCapabilities;
}

/** Capabilities to evaluate a rule again: they give it the answers that it got in the review, with redacted texts. */
interface RedactedCapabilities {
  capabilities: Capabilities;
  /** Returns the questions that the rule asked and the redacted answers that it got, for the recording. */
  noted(): RecordedCapabilityAnswers;
  /** Reports whether a CUE script contained placeholders in its code or data, so that it may have another result. */
  isCueRedacted(): boolean;
}

/**
 * Gives a rule the answers of a review (`needs`) again, in two evaluations that make a recording: `openWatched` notes
 * which texts the rule reads, and stores the answers by question. `openRedacted` gives it the stored answers redacted.
 */
export const createAnswerRepeater = (needs: RecordedCapabilityAnswers): AnswerRepeater => {
  /** The first evaluation's answers, by question number. The second asks the same in this order, in redacted text. */
  const answers = new Map<number, unknown>();
  /** The parsed JSON of a service's response, by the response. */
  const contents = new WeakMap<object, unknown>();
  return {
    openWatched: ({ watch }) => {
      const numberOf = numberQuestions();
      const changed = new Set<string>();
      return interceptAnswers(createRecordedCapabilities(needs), {
        answer: async (question, ask) => {
          const number = numberOf(question);
          const answer = await ask();
          answers.set(number, answer);
          if (!isServiceResponse(answer)) return watch(answer);
          const content = parseAnswer(answer);
          contents.set(answer, content);
          return { ...watch(answer), json: watch(content) };
        },
        getValue: (ledgerKey, value) => {
          // Called before each change of a ledger key. At the first, `value` is an answer; later, it is the rule's own.
          if (!changed.has(ledgerKey)) answers.set(numberOf(ledgerKey), value);
          changed.add(ledgerKey);
          return value;
        },
      });
    },
    openRedacted: (redact) => {
      const numberOf = numberQuestions();
      let isCueRedacted = false;
      const changed = new Set<string>();
      const unanswered = createRecordedCapabilities({ reads: [], ...(needs.cluster && { cluster: needs.cluster }) });
      const redacted = interceptAnswers(unanswered, {
        answer: async (question, ask) => {
          const number = numberOf(question);
          // If no answer was stored for this question, `ask` throws the usual error for a missing answer.
          if (!answers.has(number)) return ask();
          const answer = answers.get(number);
          // A string is the answer to a write, such as "created". It contains no secret.
          if (typeof answer === "string") return answer;
          if (!isServiceResponse(answer)) return restoreObjectName(redact(answer), question);
          const { body, ...rest } = answer;
          return { ...redact(rest), body: redact.body(body, contents.get(answer)) };
        },
        getValue: (ledgerKey, value) => {
          // Called before each change of a ledger key. At the first, returns the stored answer; later, the rule's own.
          if (changed.has(ledgerKey)) return value;
          changed.add(ledgerKey);
          return redact(answers.get(numberOf(ledgerKey)));
        },
      });
      // The recording is made of the redacted questions and answers, so these are noted.
      const { capabilities, noted } = noteAnswers({
        ...redacted,
        cue: (source, evaluate) => {
          // A script with redacted texts may have another result than in the review. The recording then says so.
          isCueRedacted ||= hasPlaceholder(source);
          return redacted.cue(source, evaluate);
        },
      });
      return { capabilities, noted, isCueRedacted: () => isCueRedacted };
    },
  };
};

/** The verb and arguments of a question. Members that only say how it is sent are left out, as they may not be JSON. */
type Question = readonly [verb: string, ...args: unknown[]];

/**
 * Returns capabilities whose calls go through `answer`. Only calls of `cue` don't, because the arguments alone
 * determine their results. When a rule changes its ledger, it gets the values that `getValue` returns for the keys.
 * `getValue` can return the value of the recorded review instead of `present`, the value in this evaluation.
 */
const interceptAnswers = (
  capabilities: Capabilities,
  {
    answer,
    getValue,
  }: {
    answer(question: Question, ask: () => Promise<unknown>): Promise<unknown>;
    getValue(ledgerKey: string, present: unknown): unknown;
  },
): Capabilities => ({
  ...interceptCalls(capabilities, (verb, args, ask) => {
    if (verb === "cue") return ask();
    const isRequest = verb === "https" || verb === "http";
    return answer(
      [verb, ...(isRequest ? args.map((request) => toRecordedRequest(request as HttpsRequest)) : args)],
      ask,
    );
  }),
  ledger: (...ledgerArguments) => ({
    change: (keys, change, seconds) =>
      capabilities.ledger(...ledgerArguments).change(
        keys,
        (present: Parameters<typeof change>[0]) =>
          // The cast is safe: `getValue` returns a value that this key had before.
          change(keys.map((key, index) => getValue(key, present[index])) as typeof present),
        seconds,
      ),
  }),
});

/**
 * Returns a function that numbers the questions of a rule. A repeated question keeps its number until the rule writes,
 * because the answer may then change.
 */
const numberQuestions = () => {
  const numbers = new Map<string, number>();
  let next = 0;
  return (question: unknown): number => {
    if (Array.isArray(question) && isWrite(question[0])) numbers.clear();
    const text = JSON.stringify(question);
    const number = numbers.get(text) ?? next++;
    numbers.set(text, number);
    return number;
  };
};

const isServiceResponse = (answer: unknown): answer is HttpsResponse => {
  const { status, body } = toMap(answer);
  return typeof status === "number" && typeof body === "string";
};

/** If redaction has replaced the name of an object that the rule read by name, restores the name. */
const restoreObjectName = (answer: unknown, [verb, , name]: Question): unknown => {
  const { metadata } = toMap(answer);
  if (verb !== "get" || toMap(metadata).name === name || metadata === undefined) return answer;
  return { ...toMap(answer), metadata: { ...toMap(metadata), name } };
};
