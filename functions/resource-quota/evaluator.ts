import type { QuantityByResource } from "postern/objects/resources";
import type { Scope } from "./scopes.ts";

/** How the objects of one resource use quotas. */
export interface Evaluator<Object> {
  /** Returns those of a quota's names that count such objects. */
  selectNames(names: readonly string[]): string[];
  /** Returns what an object uses, by these names. */
  measure(object: Object): QuantityByResource | Promise<QuantityByResource>;
  /** Returns what a quota with these names requires an object to state, and the object doesn't state. */
  findLack?(object: Object, names: readonly string[]): string | undefined;
  /** The scopes that such objects can be in; absent if they are in none. */
  scopes?: {
    includes(scope: Scope, object: Object): boolean;
    /** The scope whose values are names of classes. */
    ofClasses: string;
  };
}
