import type { QuantityByResource } from "postern/objects/resources";
import type { Scope } from "./scopes.ts";

/** Functions that say how objects of one resource, such as pods, use quotas. */
export interface Evaluator<Object> {
  /** Selects the names in a quota's `hard` that limit such objects. */
  selectNames(names: readonly string[]): string[];
  /** Returns the amounts that an object uses, by the names in a quota's `hard`. */
  measure(object: Object): QuantityByResource | Promise<QuantityByResource>;
  /** Returns a sentence if a quota with these names requires amounts that the object doesn't state. */
  findLack?(object: Object, names: readonly string[]): string | undefined;
  /** The scopes that can include such objects; absent if there are none. */
  scopes?: {
    includes(scope: Scope, object: Object): boolean;
    /** The scope whose values are names of classes. */
    classScope: string;
  };
}
