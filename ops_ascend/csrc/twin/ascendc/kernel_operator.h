// kernel_operator.h -- the only header a kernel includes: Ascend C on the host, for the twin.
#pragma once

#include "twin/ascendc/data_copy.h"
#include "twin/ascendc/data_copy_pad.h"
#include "twin/ascendc/fixpipe.h"
#include "twin/ascendc/load_data.h"
#include "twin/ascendc/mmad.h"
#include "twin/ascendc/nd2nz.h"
#include "twin/ascendc/sync_intf.h"
#include "twin/ascendc/tensor.h"
#include "twin/ascendc/vector_binary.h"
#include "twin/ascendc/vector_cast.h"
#include "twin/ascendc/vector_fill.h"
#include "twin/ascendc/vector_scalar.h"
#include "twin/ascendc/vector_unary.h"
