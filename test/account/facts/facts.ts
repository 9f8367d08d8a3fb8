import { endpointFacts } from "./endpoints.ts";
import type { Fact } from "./fact.ts";
import { lambdaFacts } from "./lambda.ts";
import { logAndMetricFacts } from "./logs.ts";
import { storageAndStackFacts } from "./storage.ts";

/** The checks of all facts in docs/background/aws-facts.md, in its order. */
export const facts: Fact[] = [...lambdaFacts, ...endpointFacts, ...logAndMetricFacts, ...storageAndStackFacts];
