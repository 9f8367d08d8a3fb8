import type { Clients } from "./aws.ts";
import type { SuiteStage } from "./stage.ts";
import type { SentReview } from "./traffic.ts";

/** The result of the check of a fact in docs/background/aws-facts.md. */
export interface Observation {
  outcome: "seen" | "differs" | "not seen";
  sentence: string;
  /** True if the account's quotas are too small to see the fact, which is no failure. */
  exceedsQuotas?: boolean;
}

/** A step of the suite, and its result in a sentence. */
export interface StepResult {
  name: string;
  isDone: boolean;
  sentence: string;
  seconds: number;
}

/** Measurements of steps, by which facts are checked later. */
export interface Measurements {
  /** The reviews that were sent while a command ran, by the command. */
  during: Map<string, SentReview[]>;
  /** The milliseconds in which two versions answered after an alias had been moved, by the command that moved it. */
  overlaps: Map<string, number>;
  /** Milliseconds until a review was counted in metrics. */
  metricDelay?: number;
  /** Milliseconds until a review was found in the log. */
  logDelay?: number;
  /** The versions of the suite's rule before and after the change of the stack. */
  aliasAtStackChange?: [before: string, after: string];
  /** The alarms that rang before reviews failed, and the number of minutes in that time that have metrics. */
  harmlessTraffic?: { minutes: number; rang: string[] };
  /** The alarms that rang while reviews failed. */
  rang: string[];
  /** The alarms that did not ring while reviews failed. */
  silent: string[];
}

/** A run of the suite. */
export interface Suite {
  name: string;
  region: string;
  /** The stage behind an HTTP API, and the stage whose functions have URLs of their own. */
  http: SuiteStage;
  url: SuiteStage;
  clients: Clients;
  /** The time when the run began, in milliseconds since 1970. */
  start: number;
  signal: AbortSignal;
  measured: Measurements;
  steps: StepResult[];
  facts: Map<string, Observation>;
  log(line: string): void;
}

export const seen = (sentence: string): Observation => ({ outcome: "seen", sentence });
export const differs = (sentence: string): Observation => ({ outcome: "differs", sentence });
export const notSeen = (sentence: string): Observation => ({ outcome: "not seen", sentence });
export const notWithinQuotas = (sentence: string): Observation => ({ ...notSeen(sentence), exceedsQuotas: true });
